"""Statements on audit records."""
