"""Use cases of the Placement API and of what goes beyond it: providers, allocations, searches, claims."""
