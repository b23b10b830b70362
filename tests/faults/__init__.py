"""What breaks in production, done on purpose to real processes; run with `pytest tests/faults`."""
