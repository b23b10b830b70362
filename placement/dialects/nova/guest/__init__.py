"""The CPUs and NUMA nodes of a guest, as flavor and image lay them out."""
