"""Why not: stages, refusals, shortages and near misses, and the words for them.

Promises tested in tests/unit/explain.
"""
