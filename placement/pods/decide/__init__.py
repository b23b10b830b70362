"""Where a pod goes, decided on a snapshot without the database."""
