"""The gate of HTTP: callers, versions, policy, limits, errors; the base of schemas; OpenAPI; the worker."""
