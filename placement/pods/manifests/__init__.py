"""Kubernetes objects as they are everywhere."""
