"""The process that keeps a cluster of the service equal to its Kubernetes."""
