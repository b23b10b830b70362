"""Who changed what, and what changed since."""
