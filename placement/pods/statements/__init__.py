"""Statements on nodes and pods."""
