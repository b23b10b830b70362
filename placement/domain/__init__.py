"""Values and rules: inventories and capacity, request groups and their grammar, allocations, errors.

Standard library only; no I/O, no clock, no knowledge of HTTP or SQL.
Promises tested in tests/unit/domain.
"""
