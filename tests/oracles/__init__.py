"""What others compute beside the service, written down so that worked cases about it can be checked."""
