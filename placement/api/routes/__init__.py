"""The routes of the Placement API, one module per thing."""
