"""Our own gunicorn worker: no thread waits for clients; those that answer requests are split into lanes."""
