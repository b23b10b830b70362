"""The use cases: claim, release, search, describe providers, import clusters.

The only room that opens a transaction, and the one that keeps each process's forest caught up.
Promises tested through HTTP in tests/.
"""
