"""Rendering: values to bodies."""
