"""Sockets, NUMA nodes, physical cores and logical CPUs: cpuset arithmetic and CPU selection.

Pure functions on plain values, standard library only. Promises tested in tests/unit/topology.
"""
