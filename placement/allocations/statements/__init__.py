"""Statements on allocations and consumers."""
