"""Statements, by what they are about."""
