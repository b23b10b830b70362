"""The state of a database's schema, as an operator sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from placement.engine.domain.errors import PlacementError, Unavailable
from placement.storage import schema
from placement.storage.database import Database
from placement.storage.failures import FailedElsewhere, words_of


class SchemaOutdated(PlacementError):
    """The schema is not the one this version works with."""


class SessionsShared(PlacementError):
    """A connection pooler between the service and the database mixes the sessions of its clients."""


@contextmanager
def opened(connection: str) -> Iterator[Database]:
    """Open a database for an operator: errors carry the words of the database, and what to do.

    A failure of another database meanwhile stays as it is.

    Raises Unavailable; Unreachable only where it may come to answer by itself.
    """
    database = Database(connection, log_failures=False)
    try:
        yield database
    except FailedElsewhere:
        raise
    except Unavailable as error:
        kind = Unavailable if database.backend.is_embedded else type(error)
        found = database.diagnose(error.__cause__ or error)
        words = words_of(error)
        ended = words if words.endswith(("?", ".")) else f"{words}."
        advice = f" {found.advice}" if found is not None else ""
        raise kind(f"{error} {database.where}: {ended}{advice}".rstrip()) from error
    finally:
        database.dispose()


def upgrade(connection: str, tell: Callable[[str], object] = schema.LOG.info) -> None:
    """Bring the schema to the newest version; `tell` takes a line for each migration.

    Raises SchemaOutdated if a newer release did that already, Unavailable.
    """
    with opened(connection) as database:
        if schema.is_newer(database):
            raise SchemaOutdated(
                f"The database has schema version {schema.version(database)}, of a newer release than this "
                f"one, whose newest is {schema.newest(database)}."
            )
        schema.upgrade(database, tell=tell)


def version(connection: str) -> str | None:
    """Return the schema version, None for an empty database."""
    with opened(connection) as database:
        return schema.version(database)


def stamp(connection: str, revision: str) -> None:
    """Record a schema version without changing anything. Raises BadRequest for one that does not exist."""
    with opened(connection) as database:
        schema.stamp(database, revision)


def make_ready(connection: str, *, upgrade_first: bool = False) -> str | None:
    """Make the database ready for the service to start, and return the version of its schema.

    An embedded database is migrated; a server's must be current, unless `upgrade_first` says otherwise.
    A schema of a newer release will do as long as it only adds to what this one knows.
    Standard names that are missing are inserted. Raises SchemaOutdated, SessionsShared, Unavailable.
    """
    with opened(connection) as database:
        if not database.backend.keeps_sessions(database.read):
            raise SessionsShared(
                "The connection pooler in front of the database does not keep sessions: "
                "set it to session pooling, or connect to PostgreSQL itself."
            )
        if (database.backend.is_embedded or upgrade_first) and not schema.is_newer(database):
            schema.upgrade(database)
        else:
            require(database)
            schema.sync_standard_names(database)
        return schema.version(database)


def require(database: Database) -> None:
    """Raise SchemaOutdated unless this release works with the schema as it is; a newer one may do."""
    present, wanted = schema.version(database), schema.newest(database)
    if present == wanted:
        return
    if not schema.is_newer(database):
        raise SchemaOutdated(
            f"The database has schema version {present}, this service needs {wanted}. "
            "Run `placement db upgrade` with the same database first."
        )
    obstacles = schema.obstacles(database)
    if obstacles:
        raise SchemaOutdated(
            f"The database has schema version {present}, of a newer release than this one, whose newest is "
            f"{wanted}, and {obstacles[0]}. Start the newer release."
        )
