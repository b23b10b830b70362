"""Provider trees as numpy columns: providers, inventories, memberships, sharing; and what changed, applied.

No SQL, no HTTP, no clock: a forest is fed rows, and gives away snapshots of itself that stay as they are.
Promises tested in tests/unit/forest.
"""
