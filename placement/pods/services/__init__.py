"""The use cases of clusters, nodes and pods."""
