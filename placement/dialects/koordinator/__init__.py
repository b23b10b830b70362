"""Kubernetes nodes and pods as Koordinator annotates them.

Pure. Promises tested in tests/unit/dialects/koordinator.
"""
