"""Statements on the names of projects, users and consumers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.given_names import GivenName, GivenNameKind, NameKey
from placement.engine.domain.portions import portions
from placement.storage import tables
from placement.storage.database import Executor, Transaction

_names = tables.given_names
_columns = sa.select(*(_names.c[name] for name in GivenName._fields))
_AT_ONCE = 5000


def names_with(connection: Executor, keys: Collection[NameKey], *, keep: bool = False) -> list[GivenName]:
    """Return the names of some things; with `keep` they stay until the transaction ends.

    All are found by their ids, in one statement for each 5,000 of them.
    """
    wanted = set(keys)
    found = []
    for some in portions(sorted({key.uuid for key in wanted}), _AT_ONCE):
        statement = _columns.where(_names.c.uuid.in_(some)).order_by(_names.c.id)
        rows = connection.execute(statement.with_for_update() if keep else statement)
        found += [GivenName(*row) for row in rows]
    return [each for each in found if (each.kind, each.uuid) in wanted]


def names_after(
    connection: Executor, filters: Mapping[str, str], cluster: str | None, after: int, count: int
) -> list[GivenName]:
    """Return the next names by id with these values in their columns.

    With a `cluster` only names of consumers that hold something there, of their projects and their users.
    """
    statement = _columns.where(
        _names.c.id > after, *(_names.c[key] == value for key, value in filters.items())
    )
    if cluster is not None:
        statement = statement.where(_of_cluster(cluster))
    return [GivenName(*row) for row in connection.execute(statement.order_by(_names.c.id).limit(count))]


def _of_cluster(cluster: str) -> sa.ColumnElement[bool]:
    """Return the condition that something with the id of a name holds something of the cluster."""
    consumers, projects, users = tables.consumers, tables.projects, tables.users
    held = (
        consumers.join(tables.allocations, tables.allocations.c.consumer_id == consumers.c.uuid)
        .join(tables.providers, tables.providers.c.id == tables.allocations.c.resource_provider_id)
        .join(tables.clusters, tables.clusters.c.id == tables.providers.c.cluster_id)
    )
    ids = {
        GivenNameKind.PROJECT: sa.select(projects.c.external_id).select_from(
            held.join(projects, projects.c.id == consumers.c.project_id)
        ),
        GivenNameKind.USER: sa.select(users.c.external_id).select_from(
            held.join(users, users.c.id == consumers.c.user_id)
        ),
        GivenNameKind.CONSUMER: sa.select(consumers.c.uuid).select_from(held),
    }
    in_cluster = tables.clusters.c.name == cluster
    some = (
        sa.and_(_names.c.kind == str(kind), _names.c.uuid.in_(chosen.where(in_cluster)))
        for kind, chosen in ids.items()
    )
    return sa.or_(*some)


def write(transaction: Transaction, names: Mapping[NameKey, str], known: Mapping[NameKey, int]) -> None:
    """Write names, by their ids where they are `known`; accept what another transaction adds meanwhile."""
    stamp = {"written_by": request_scope.initiator().user_id, "written_at": transaction.now}
    changed = [{"row": known[key], "new": name} for key, name in names.items() if key in known]
    if changed:
        update = sa.update(_names).where(_names.c.id == sa.bindparam("row"))
        transaction.execute(update.values(name=sa.bindparam("new"), **stamp), changed)
    added = [{**key._asdict(), "name": names[key], **stamp} for key in sorted(names.keys() - known.keys())]
    if added:
        transaction.execute(transaction.insert_or_ignore(_names), added)


def delete(transaction: Transaction, ids: Collection[int]) -> None:
    """Delete names by their ids."""
    transaction.execute(sa.delete(_names).where(_names.c.id.in_(sorted(ids))))


def count(connection: Executor, most: int) -> int:
    """Return how many names there are, `most` + 1 if there are more."""
    some = sa.select(_names.c.id).limit(most + 1).subquery()
    found: int = connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
    return found
