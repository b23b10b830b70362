"""The nodes of a cluster as columns: what many nodes are asked at once."""
