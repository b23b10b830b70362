"""Resource providers, inventories, traits, aggregates, classes; the forest kept in step with the database."""
