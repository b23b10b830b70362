"""Pods on nodes: snapshot, filter, score, reserve, account.

Pure: decides on values, writes nothing. Promises tested in tests/unit/scheduling.
"""
