"""What each process remembers of the database, and how it is kept in step with it."""
