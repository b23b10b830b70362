"""A scheduler of its own for pods: a loop that places many pods in one call of the service and binds them."""
