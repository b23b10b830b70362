"""Nodes as Koordinator annotates them, to provider trees."""
