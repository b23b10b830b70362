"""Logical CPUs, cores and NUMA nodes of a host: which of them a pod gets."""
