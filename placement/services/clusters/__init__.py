"""Use cases on Kubernetes clusters: nodes, pods, the scheduler extender."""
