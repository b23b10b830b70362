"""Metrics for operators: every figure of the service by its name, shared by all of its processes."""
