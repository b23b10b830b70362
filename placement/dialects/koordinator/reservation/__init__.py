"""Reservations of Koordinator: places that are kept for pods to come."""
