"""A query on the forest: filter, anchor, equivalence classes, combine, enumerate, order.

Pure: a snapshot and a query in, candidates out. Promises tested in tests/unit/search, most of them against a
naive enumerator.
"""
