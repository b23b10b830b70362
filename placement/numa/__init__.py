"""Sockets, NUMA nodes, physical cores and logical CPUs: what a host has, and which of it a pod gets.

Pure functions on plain values, standard library only. Promises tested in tests/unit/numa.
"""
