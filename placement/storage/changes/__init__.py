"""What changed since the last look, and in which history of writes."""
