"""A query on the forest: filter, anchor, combine, enumerate, order, explain, count.

Pure: a snapshot and a query in, candidates out. Promises tested in tests/unit/engine/search, most of them
against a naive enumerator.
"""
