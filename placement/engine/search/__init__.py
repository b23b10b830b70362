"""A query on the forest: filter, viable roots, equivalence, combine, enumerate, answer.

Beside these stages it orders, explains and counts. Pure: a snapshot and a query in, candidates out. Promises
tested in tests/unit/engine/search, most of them against a naive enumerator.
"""
