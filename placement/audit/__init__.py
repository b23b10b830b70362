"""Audit records of changes, and events about them."""
