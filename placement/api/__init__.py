"""HTTP: routes, microversions, schemas, rendering, authentication. The only room that knows Flask.

Nothing here decides about resources: it parses, calls one service and renders.
Promises tested in tests/test_*.py through a live application.
"""
