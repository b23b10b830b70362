"""Reading resource providers."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from placement.domain.portions import portions
from placement.storage import tables
from placement.storage.database import Executor

_AT_ONCE = 5000


class Provider(NamedTuple):
    """One provider as the API shows it."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    parent_id: int | None
    root_id: int
    changed_at: datetime.datetime


_self, _parent, _root = tables.providers, tables.providers.alias("parent"), tables.providers.alias("root")
_provider = (
    sa.select(
        _self.c.id,
        _self.c.uuid,
        _self.c.name,
        _self.c.generation,
        _parent.c.uuid.label("parent_uuid"),
        sa.func.coalesce(_root.c.uuid, _self.c.uuid).label("root_uuid"),
        _self.c.parent_provider_id.label("parent_id"),
        sa.func.coalesce(_self.c.root_provider_id, _self.c.id).label("root_id"),
        sa.func.coalesce(_self.c.updated_at, _self.c.created_at).label("changed_at"),
    )
    .select_from(_self)
    .outerjoin(_parent, _parent.c.id == _self.c.parent_provider_id)
    .outerjoin(_root, _root.c.id == _self.c.root_provider_id)
)


def find(connection: Executor, uuid: str) -> Provider | None:
    """The provider with this uuid."""
    row = connection.execute(_provider.where(_self.c.uuid == uuid)).first()
    return Provider(*row) if row else None


def ids_of(connection: Executor, uuids: Collection[str]) -> dict[str, int]:
    """The ids of those of the providers that exist, by uuid."""
    rows = connection.execute(sa.select(_self.c.uuid, _self.c.id).where(_self.c.uuid.in_(sorted(uuids))))
    return {row[0]: row[1] for row in rows}


def roots_of(connection: Executor, uuids: Collection[str]) -> list[str]:
    """The uuids of the roots of the providers that exist, one for each of these, in order of their ids."""
    root = sa.func.coalesce(_root.c.uuid, _self.c.uuid)
    joined = _self.outerjoin(_root, _root.c.id == _self.c.root_provider_id)
    statement = (
        sa.select(root).select_from(joined).where(_self.c.uuid.in_(sorted(uuids))).order_by(_self.c.id)
    )
    return list(connection.execute(statement).scalars())


def listed(
    connection: Executor,
    *,
    name: str | None = None,
    uuid: str | None = None,
    ids: Collection[int] | None = None,
) -> list[Provider]:
    """Providers in creation order, narrowed by what is given."""
    statement = _provider.order_by(_self.c.id)
    if name is not None:
        statement = statement.where(_self.c.name == name)
    if uuid is not None:
        statement = statement.where(_self.c.uuid == uuid)
    if ids is None:
        return [Provider(*row) for row in connection.execute(statement)]
    return [
        Provider(*row)
        for some in portions(sorted(ids), _AT_ONCE)
        for row in connection.execute(statement.where(_self.c.id.in_(some)))
    ]


def exist(connection: Executor) -> bool:
    """Whether there is any provider."""
    return connection.execute(sa.select(_self.c.id).limit(1)).first() is not None


def root_names(connection: Executor) -> dict[int, str]:
    """The names of all providers that have no parent, by id."""
    roots = sa.select(_self.c.id, _self.c.name).where(_self.c.parent_provider_id.is_(None))
    return {row[0]: row[1] for row in connection.execute(roots)}


def uuids_by_name(connection: Executor, names: Collection[str]) -> dict[str, str]:
    """The uuids of the providers of these names that exist."""
    statement = sa.select(_self.c.name, _self.c.uuid).where(_self.c.name.in_(sorted(names)))
    return {row[0]: row[1] for row in connection.execute(statement)}


class Named(NamedTuple):
    """A provider by its uuid and name."""

    uuid: str
    name: str


def named(connection: Executor, ids: Collection[int]) -> dict[int, Named]:
    """Those of the providers that exist, by id."""
    statement = sa.select(_self.c.id, _self.c.uuid, _self.c.name)
    return {
        row[0]: Named(row[1], row[2])
        for some in portions(sorted(ids), _AT_ONCE)
        for row in connection.execute(statement.where(_self.c.id.in_(some)))
    }


class NamedPlace(NamedTuple):
    """A provider by name, and the root above it, which may be itself."""

    name: str
    root_uuid: str
    root_name: str


def named_places(connection: Executor, uuids: Collection[str]) -> dict[str, NamedPlace]:
    """Those of the providers that exist, by uuid."""
    statement = (
        sa.select(
            _self.c.uuid,
            _self.c.name,
            sa.func.coalesce(_root.c.uuid, _self.c.uuid),
            sa.func.coalesce(_root.c.name, _self.c.name),
        )
        .select_from(_self.outerjoin(_root, _root.c.id == _self.c.root_provider_id))
        .where(_self.c.uuid.in_(sorted(uuids)))
    )
    return {row[0]: NamedPlace(*row[1:]) for row in connection.execute(statement)}


def names_by_uuid(connection: Executor, uuids: Collection[str]) -> dict[str, str]:
    """The names of the providers of these uuids that exist."""
    statement = sa.select(_self.c.uuid, _self.c.name).where(_self.c.uuid.in_(sorted(uuids)))
    return {row[0]: row[1] for row in connection.execute(statement)}
