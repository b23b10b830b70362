"""A query on the forest: filter, anchor, equivalence classes, combine, enumerate, order.

Pure: a snapshot and a query in, candidates out. Promises tested in tests/unit/search and, against a naive
enumerator, in tests/test_search_agrees_with_naive_enumerator.py.
"""
