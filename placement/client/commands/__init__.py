"""Commands, by the noun they are about."""
