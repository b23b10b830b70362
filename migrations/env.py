"""How Alembic reaches the database: the one that the caller hands over, in one transaction."""

from alembic import context

from placement.storage.tables import metadata

database = context.config.attributes["database"]

with database.write() as transaction:
    database.backend.wait_briefly(transaction.connection)
    context.configure(
        connection=transaction.connection,
        target_metadata=metadata,
        render_as_batch=database.backend.alters_by_copying,
        compare_type=True,
    )
    context.run_migrations()
