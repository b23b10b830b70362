"""The choice of logical CPUs, cores and NUMA nodes of a host for a pod."""
