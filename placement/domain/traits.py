"""Names of traits that mean something to several rooms."""

NUMA_ROOT = "HW_NUMA_ROOT"
"""A provider that stands for a NUMA node has this trait."""
