"""Candidates, claims, allocations, reshaping."""
