"""The forest (all provider trees as numpy columns) and the search on it: filter, combine, render order.

No SQL, no HTTP, no clock: a forest is fed rows and answers queries. The only room that knows numpy.
Promises tested in tests/unit/candidates and, against a naive enumerator,
in tests/test_search_agrees_with_naive_enumerator.py.
"""
