"""Kubernetes as it is everywhere: quantities, fields with paths, manifests, taints, selectors and affinity.

No word of Koordinator. Promises tested in tests/unit/kubernetes.
"""
