"""Koordinator: its annotations, labels, settings, gangs and reservations."""
