"""Kubernetes nodes and pods: read, filtered, scored, placed and written."""
