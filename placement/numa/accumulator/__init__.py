"""Choosing logical CPUs for a pod: whole cores, spread, or what is left."""
