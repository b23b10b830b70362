"""The state of a cluster: hosts, pods on them, and both as columns."""
