"""What must hold of the rows of a database, and which of it can be put right."""
