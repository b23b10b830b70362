"""Pods as Koordinator annotates them: what they ask for, and the queries that ask the same."""
