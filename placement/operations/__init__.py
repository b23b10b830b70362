"""Running it: settings, the command line, gunicorn, logging, the demonstration data."""
