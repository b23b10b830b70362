"""The use cases: claim, release, search, describe providers, import clusters.

The only room that opens a transaction. It also keeps the forest of each process up to date.
Promises tested through HTTP in tests/.
"""
