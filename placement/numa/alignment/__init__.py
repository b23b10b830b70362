"""Aligning a pod to NUMA nodes: hints of every resource, merged to one affinity, and scored."""
