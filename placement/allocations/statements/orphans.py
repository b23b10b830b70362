"""Statements about what may be left over: consumers, and names of providers that may be one elsewhere.

A host is the root above a provider. A provider that shares by aggregate is no host, and nothing below it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.allocations.statements.lists import NamedHost
from placement.engine.domain.portions import portions
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.statements.providers import Named
from placement.storage import tables
from placement.storage.database import Executor

MIGRATION = "MIGRATION"
"""The type of the consumers with which nova holds the source of a move."""
_AT_ONCE = 5000
_consumers, _providers = tables.consumers.c, tables.providers.c


class HeldConsumer(NamedTuple):
    """A consumer that holds something, with the times of its creation and last change, if these are known.

    `hosts`: at most two of its hosts, the first and the last by name; `host_count`: how many there are.
    """

    uuid: str
    generation: int
    consumer_type: str | None
    project_id: str
    user_id: str
    is_pod: bool
    created_at: datetime.datetime | None
    changed_at: datetime.datetime | None
    host_count: int
    hosts: tuple[NamedHost, ...]


_IS_HOST = "providers.id NOT IN (SELECT id FROM pools) AND roots.id NOT IN (SELECT id FROM pools)"
# A host in one text, so that the least one has its own uuid: the name, a blank, the uuid.
_HOST = f"CASE WHEN {_IS_HOST} THEN roots.name || ' ' || roots.uuid END"
_HOSTS = f"COUNT(DISTINCT CASE WHEN {_IS_HOST} THEN roots.id END)"


def _held(chosen: str, ending: str) -> sa.sql.selectable.TextualSelect:
    """Return the statement for the consumers that a condition chooses."""
    statement = sa.text(
        f"""
        WITH pools AS (
            SELECT resource_provider_id AS id FROM resource_provider_traits
              JOIN traits ON traits.id = resource_provider_traits.trait_id WHERE traits.name = :sharing)
        SELECT consumers.uuid, consumers.generation, consumer_types.name AS consumer_type,
               projects.external_id AS project_id, users.external_id AS user_id,
               consumers.cluster_id IS NOT NULL AS is_pod, consumers.created_at,
               COALESCE(consumers.updated_at, consumers.created_at) AS changed_at,
               {_HOSTS} AS host_count, MIN({_HOST}) AS first_host, MAX({_HOST}) AS last_host
          FROM (SELECT consumers.* FROM consumers {chosen}) AS consumers
          JOIN projects ON projects.id = consumers.project_id
          JOIN users ON users.id = consumers.user_id
          LEFT JOIN consumer_types ON consumer_types.id = consumers.consumer_type_id
          JOIN allocations ON allocations.consumer_id = consumers.uuid
          JOIN resource_providers AS providers ON providers.id = allocations.resource_provider_id
          JOIN resource_providers AS roots ON roots.id = COALESCE(providers.root_provider_id, providers.id)
         GROUP BY consumers.uuid, consumers.generation, consumer_types.name, projects.external_id,
                  users.external_id, consumers.cluster_id, consumers.created_at, consumers.updated_at
                  {ending}
        """
    )
    return statement.bindparams(sharing=SHARING_TRAIT).columns(
        created_at=sa.DateTime(), changed_at=sa.DateTime()
    )


_OF_MIGRATIONS = """
    WHERE consumers.consumer_type_id IN (SELECT id FROM consumer_types WHERE name = :type)
      AND consumers.uuid > :after
      AND EXISTS (SELECT 1 FROM allocations WHERE allocations.consumer_id = consumers.uuid)
"""
_migrations = _held(f"{_OF_MIGRATIONS} ORDER BY consumers.uuid LIMIT :count", "ORDER BY consumers.uuid")
# Most consumers are of one host, so these go before anything is joined to them.
_OF_SEVERAL_TREES = """
    WHERE consumers.uuid IN (
        SELECT allocations.consumer_id FROM allocations
          JOIN resource_providers AS providers ON providers.id = allocations.resource_provider_id
         WHERE allocations.consumer_id > :after AND allocations.consumer_id <= :end
           AND providers.id NOT IN (SELECT id FROM pools)
         GROUP BY allocations.consumer_id
        HAVING COUNT(DISTINCT COALESCE(providers.root_provider_id, providers.id)) > 1)
"""
_on_several_hosts = _held(
    _OF_SEVERAL_TREES,
    f"HAVING {_HOSTS} > 1 ORDER BY consumers.uuid LIMIT :count",
)
_old_migrations = sa.text(
    f"""
    SELECT COUNT(*) FROM (
        SELECT 1 AS one FROM consumers {_OF_MIGRATIONS}
           AND (consumers.created_at IS NULL OR consumers.created_at < :before) LIMIT :count) AS counted
    """
).bindparams(sa.bindparam("before", type_=sa.DateTime))


def migrations(connection: Executor, after: str, count: int) -> list[HeldConsumer]:
    """Return at most `count` of the next consumers of migrations, in order of their uuids."""
    rows = connection.execute(_migrations, {"type": MIGRATION, "after": after, "count": count})
    return list(map(_consumer, rows))


def old_migrations(connection: Executor, before: datetime.datetime, most: int) -> int:
    """Return how many consumers of migrations were not created since then, counted up to `most`."""
    values = {"type": MIGRATION, "after": "", "before": before, "count": most}
    found: int = connection.execute(_old_migrations, values).scalar_one()
    return found


def end_of_window(connection: Executor, after: str, size: int) -> str | None:
    """Return the uuid of the last of the next `size` consumers, None if there are no more than these."""
    following = sa.select(_consumers.uuid).where(_consumers.uuid > after).order_by(_consumers.uuid)
    rows = connection.execute(following.offset(size - 1).limit(2)).scalars().all()
    return rows[0] if len(rows) > 1 else None


def on_several_hosts(connection: Executor, after: str, end: str, count: int) -> list[HeldConsumer]:
    """Return the first consumers behind `after`, up to `end`, that hold something of two hosts or more."""
    rows = connection.execute(_on_several_hosts, {"after": after, "end": end, "count": count})
    return list(map(_consumer, rows))


def _consumer(row: Any) -> HeldConsumer:
    *columns, is_pod, created, changed, count, first, last = row
    names = dict.fromkeys(text for text in (first, last) if text is not None)
    hosts = tuple(NamedHost(*text.rsplit(" ", 1)) for text in names)
    return HeldConsumer._make((*columns, bool(is_pod), created, changed, count, hosts))


def odd_names(connection: Executor, most: int) -> list[Named]:
    """Return at most `most` providers with a name that has capitals, other than ASCII, or a blank at its end.

    Of several names that MySQL calls one, all but one are such names.
    """
    name = _providers.name
    odd = sa.or_(name != sa.func.lower(name), name.like("% "), name.regexp_match("[^ -~]"))
    rows = connection.execute(sa.select(_providers.uuid, name).where(odd).order_by(_providers.id).limit(most))
    return [Named(*row) for row in rows]


def called(connection: Executor, names: Collection[str]) -> list[Named]:
    """Return the providers that have one of these names."""
    return [
        Named(*row)
        for some in portions(sorted(names), _AT_ONCE)
        for row in connection.execute(
            sa.select(_providers.uuid, _providers.name).where(_providers.name.in_(some))
        )
    ]
