"""Names that people gave to projects, users and consumers: written many at once, shown beside their ids."""
