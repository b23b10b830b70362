"""What must hold in a database: an invariant has a query with a row for each violation."""
