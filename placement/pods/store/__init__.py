"""Rows of clusters, nodes and pods, and what is kept in step with them."""
