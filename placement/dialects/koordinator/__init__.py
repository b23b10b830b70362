"""Kubernetes nodes and pods as Koordinator annotates them.

Parsed manifests in, values out; what is wrong with a manifest is collected and reported as a whole.
Promises tested in tests/unit/dialects/koordinator.
"""
