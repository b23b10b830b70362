"""What pods have been given, as their annotations say."""
