"""Kubernetes nodes and pods as Koordinator annotates them. Promises tested in tests/unit/dialects/koordinator."""
