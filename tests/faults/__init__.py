"""Tests that take long: real faults, real load, real Kubernetes. `make faults` runs them."""
