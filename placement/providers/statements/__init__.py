"""Statements on providers and what belongs to them."""
