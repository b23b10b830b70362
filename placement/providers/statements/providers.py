"""Statements that lock, change and read resource providers, one by one and as whole trees."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.portions import portions
from placement.storage import tables
from placement.storage.backends.backend import Backend
from placement.storage.changes import PROVIDER_DELETED, record_change
from placement.storage.database import Executor, RowStatement, Transaction
from placement.storage.tables import CONTENT, Revision

# Any number; all processes that re-parent providers of one database must use the same one.
_TREES_LOCK = 0x706C6163
_AT_ONCE = 5000


_self = tables.providers
_root_id = sa.func.coalesce(_self.c.root_provider_id, _self.c.id)


class LockedProvider(NamedTuple):
    """A provider, locked until the transaction ends; `cluster_id` if the import of a node made it."""

    id: int
    uuid: str
    generation: int
    root_id: int
    parent_id: int | None
    cluster_id: int | None
    name: str


_lockable = sa.select(
    *_self.c["id", "uuid", "generation"],
    _root_id,
    *_self.c["parent_provider_id", "cluster_id", "name"],
).with_for_update()


def lock(transaction: Transaction, uuid: str) -> LockedProvider | None:
    """Lock one provider."""
    row = transaction.execute(_lockable.where(_self.c.uuid == uuid)).first()
    return LockedProvider(*row) if row else None


def lock_all(
    transaction: Transaction, uuids: Collection[str], ids: Collection[int] = ()
) -> list[LockedProvider]:
    """Lock providers by uuid or id, in ascending order of ids so that no two writers wait for each other."""
    among = transaction.backend.among
    wanted = among(_self.c.uuid, sorted(uuids))
    if ids:
        wanted = wanted | among(_self.c.id, sorted(ids))
    statement = _lockable.where(wanted).order_by(_self.c.id)
    return [LockedProvider(*row) for row in transaction.execute(statement)]


@cache
def _lock_and_stamp(backend: type[Backend]) -> sa.Update:
    """Return a statement that locks in ascending order of ids, then stamps and raises some generations."""
    named = sa.or_(
        _self.c.uuid.in_(sa.bindparam("uuids", expanding=True)),
        _self.c.id.in_(sa.bindparam("ids", expanding=True)),
    )
    locked = sa.select(_self.c.id).where(named).order_by(_self.c.id).with_for_update().cte("locked")
    raised = sa.or_(
        _self.c.uuid.in_(sa.bindparam("raised_uuids", expanding=True)),
        _self.c.id.in_(sa.bindparam("raised_ids", expanding=True)),
    )
    return (
        sa.update(_self)
        .where(_self.c.id == locked.c.id)
        .values(
            generation=_self.c.generation + sa.case((raised, 1), else_=0),
            revision=backend.stamp,
            content_revision=sa.literal_column(CONTENT, Revision()),
            usage_revision=backend.stamp,
            updated_at=sa.bindparam("now"),
        )
        .returning(_self.c.id, _self.c.uuid)
    )


def lock_and_stamp(
    transaction: Transaction,
    raised_uuids: Collection[str],
    raised_ids: Collection[int] = (),
    unraised_ids: Collection[int] = (),
) -> dict[str, int]:
    """Lock and stamp providers with a change of use; `raised` ones also get the next generation.

    Returns their ids by uuid. If the transaction changes more than their use, it stamps again, by `advance`.
    """
    parameters = {
        "uuids": sorted(raised_uuids),
        "ids": sorted({*raised_ids, *unraised_ids}),
        "raised_uuids": sorted(raised_uuids),
        "raised_ids": sorted(raised_ids),
        "now": transaction.now,
        **transaction.stamp_parameters,
    }
    rows = transaction.execute(_lock_and_stamp(type(transaction.backend)), parameters)
    return {row[1]: row[0] for row in rows}


def lock_trees(transaction: Transaction, *, shared: bool) -> None:
    """Keep trees from being re-rooted (shared), or re-root them alone (not shared)."""
    transaction.backend.lock_number(transaction.connection, _TREES_LOCK, shared=shared)


def insert(
    transaction: Transaction, uuid: str, name: str, parent_provider: LockedProvider | None = None
) -> int:
    """Insert a provider of generation 0; return its id, or 0 if its uuid or name is taken."""
    values = {
        "uuid": uuid,
        "name": name,
        "generation": 0,
        "parent_provider_id": parent_provider.id if parent_provider else None,
        "root_provider_id": parent_provider.root_id if parent_provider else None,
        "revision": transaction.stamp,
        "created_at": transaction.now,
    }
    statement = transaction.insert_or_ignore(_self).values(values).returning(_self.c.id)
    id_ = transaction.execute(statement).scalar_one_or_none()
    if id_ is None:
        return 0
    if parent_provider is None:
        transaction.execute(sa.update(_self).where(_self.c.id == id_).values(root_provider_id=id_))
    return int(id_)


def rename(transaction: Transaction, id_: int, name: str) -> None:
    """Change the name; the generation stays."""
    changed = {"name": name, "updated_at": transaction.now, "revision": transaction.stamp}
    transaction.execute(sa.update(_self).where(_self.c.id == id_).values(changed))


def name_taken(transaction: Transaction, name: str, other_than: int = 0) -> bool:
    """Return whether another provider has the name."""
    statement = sa.select(_self.c.id).where(_self.c.name == name, _self.c.id != other_than)
    return transaction.execute(statement).first() is not None


def subtree(transaction: Transaction, locked: LockedProvider) -> set[int]:
    """Return the ids of a provider and of all providers below it."""
    rows = transaction.execute(
        sa.select(_self.c.id, _self.c.parent_provider_id).where(_self.c.root_provider_id == locked.root_id)
    )
    children: dict[int, list[int]] = {}
    for row in rows:
        children.setdefault(row[1], []).append(row[0])
    found, waiting = {locked.id}, [locked.id]
    while waiting:
        below = children.get(waiting.pop(), ())
        found.update(below)
        waiting.extend(below)
    return found


def move(
    transaction: Transaction,
    locked: LockedProvider,
    parent_provider: LockedProvider | None,
    members: Iterable[int],
) -> None:
    """Put a provider with its subtree (`members`) below another parent, or make it a root."""
    root_id = parent_provider.root_id if parent_provider else locked.id
    for some in portions(sorted(members), _AT_ONCE):
        moved = {"root_provider_id": root_id, "revision": transaction.stamp}
        transaction.execute(sa.update(_self).where(_self.c.id.in_(some)).values(moved))
    placed = {
        "parent_provider_id": parent_provider.id if parent_provider else None,
        "updated_at": transaction.now,
    }
    transaction.execute(sa.update(_self).where(_self.c.id == locked.id).values(placed))


def touch(transaction: Transaction, raised: Collection[int], unraised: Collection[int] = ()) -> None:
    """Stamp providers; the ones in `raised` get the next generation too."""
    advance(transaction, {**dict.fromkeys(unraised, 0), **dict.fromkeys(raised, 1)})


def advance(transaction: Transaction, steps: Mapping[int, int]) -> None:
    """Stamp providers that may have changed in any way, and raise the generation of each by its step."""
    if not steps:
        return
    by_step: dict[int, list[int]] = {}
    for id_, size in sorted(steps.items()):
        by_step.setdefault(size, []).append(id_)
    step: sa.ColumnElement[int] = sa.literal(next(iter(by_step)))
    if len(by_step) > 1:
        step = sa.case(*((_self.c.id.in_(ids), size) for size, ids in by_step.items()), else_=0)
    transaction.execute(
        sa.update(_self)
        .where(_self.c.id.in_(sorted(steps)))
        .values(
            generation=_self.c.generation + step,
            revision=transaction.stamp,
            usage_revision=None,
            updated_at=transaction.now,
        )
    )


def has_children(transaction: Transaction, id_: int) -> bool:
    """Return whether some provider has this one as parent."""
    statement = sa.select(_self.c.id).where(_self.c.parent_provider_id == id_)
    return transaction.execute(statement).first() is not None


def has_allocations(transaction: Transaction, id_: int) -> bool:
    """Return whether some consumer holds something of this provider."""
    table = tables.allocations
    statement = sa.select(table.c.id).where(table.c.resource_provider_id == id_)
    return transaction.execute(statement).first() is not None


def delete(transaction: Transaction, ids: Sequence[int]) -> None:
    """Remove providers, children before parents, with their inventories and memberships; record it."""
    for table in (tables.inventories, tables.provider_traits, tables.provider_aggregates):
        transaction.execute(sa.delete(table).where(table.c.resource_provider_id.in_(ids)))
    transaction.execute(
        sa.update(_self).where(_self.c.id.in_(ids)).values(parent_provider_id=None, root_provider_id=None)
    )
    gone = sa.delete(_self).where(_self.c.id.in_(ids)).returning(_self.c.uuid, _self.c.name)
    for uuid, name in transaction.execute(gone):
        transaction.record(Action.DELETE, TargetKind.PROVIDER, uuid, before={"name": name})
    record_change(transaction, PROVIDER_DELETED, ids)


# Reading resource providers.


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


_parent, _root = tables.providers.alias("parent"), tables.providers.alias("root")
_with_root = _self.outerjoin(_root, _root.c.id == _self.c.root_provider_id)
_with_parent = _with_root.outerjoin(_parent, _parent.c.id == _self.c.parent_provider_id)
_root_uuid = sa.func.coalesce(_root.c.uuid, _self.c.uuid)
_provider = sa.select(
    *_self.c["id", "uuid", "name", "generation"],
    _parent.c.uuid,
    _root_uuid,
    _self.c.parent_provider_id,
    _root_id,
    sa.func.coalesce(_self.c.updated_at, _self.c.created_at),
).select_from(_with_parent)


def find(connection: Executor, uuid: str) -> Provider | None:
    """Return the provider with this uuid."""
    row = connection.execute(_provider.where(_self.c.uuid == uuid)).first()
    return Provider(*row) if row else None


def listed(
    connection: Executor,
    *,
    name: str | None = None,
    uuid: str | None = None,
    ids: Collection[int] | None = None,
) -> list[Provider]:
    """Return providers in creation order, narrowed by the given filters."""
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
    """Return whether there is any provider."""
    return connection.execute(sa.select(_self.c.id).limit(1)).first() is not None


def ids_of(connection: Executor, uuids: Collection[str]) -> dict[str, int]:
    """Return the ids of the providers that exist, by uuid."""
    return _pairs(connection, _self.c.uuid, _self.c.id, _self.c.uuid.in_(sorted(uuids)))


def uuids_by_name(connection: Executor, names: Collection[str]) -> dict[str, str]:
    """Return the uuids of the existing providers with these names."""
    return _pairs(connection, _self.c.name, _self.c.uuid, _self.c.name.in_(sorted(names)))


def names_by_uuid(connection: Executor, uuids: Collection[str]) -> dict[str, str]:
    """Return the names of the existing providers with these uuids."""
    return _pairs(connection, _self.c.uuid, _self.c.name, _self.c.uuid.in_(sorted(uuids)))


def names_by_id(connection: Executor, ids: Collection[int]) -> dict[int, str]:
    """Return the names of providers by id."""
    return _pairs(connection, _self.c.id, _self.c.name, _self.c.id.in_(sorted(ids)))


def root_names(connection: Executor) -> dict[int, str]:
    """Return the names of all providers that have no parent, by id."""
    return _pairs(connection, _self.c.id, _self.c.name, _self.c.parent_provider_id.is_(None))


def _pairs(
    connection: Executor, key: sa.Column[Any], value: sa.Column[Any], where: sa.ColumnElement[bool]
) -> dict[Any, Any]:
    return {row[0]: row[1] for row in connection.execute(sa.select(key, value).where(where))}


def roots_of(connection: Executor, uuids: Collection[str]) -> list[str]:
    """Return the uuid of the root of each provider that exists, in order of the providers' ids."""
    wanted = sa.select(_root_uuid).select_from(_with_root).where(_self.c.uuid.in_(sorted(uuids)))
    return list(connection.execute(wanted.order_by(_self.c.id)).scalars())


class Named(NamedTuple):
    """A provider by its uuid and name."""

    uuid: str
    name: str


def named(connection: Executor, ids: Collection[int]) -> dict[int, Named]:
    """Return uuid and name of the providers that exist, by id."""
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
    """Return name and root of the providers that exist, by uuid."""
    root_name = sa.func.coalesce(_root.c.name, _self.c.name)
    statement = sa.select(_self.c.uuid, _self.c.name, _root_uuid, root_name).select_from(_with_root)
    rows = connection.execute(statement.where(_self.c.uuid.in_(sorted(uuids))))
    return {row[0]: NamedPlace(*row[1:]) for row in rows}


class ListedProvider(NamedTuple):
    """A provider by names; `id` is its place in the list."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    cluster: str | None


def page(connection: Executor, cluster: str | None, after: int, count: int) -> list[ListedProvider]:
    """Return the next providers in order of their ids, which never change."""
    statement = (
        sa.select(
            *_self.c["id", "uuid", "name", "generation"],
            _parent.c.uuid,
            _root_uuid,
            tables.clusters.c.name,
        )
        .select_from(_with_parent)
        .outerjoin(tables.clusters, tables.clusters.c.id == _self.c.cluster_id)
        .where(_self.c.id > after)
        .order_by(_self.c.id)
        .limit(count)
    )
    if cluster is not None:
        statement = statement.where(tables.clusters.c.name == cluster)
    return [ListedProvider(*row) for row in connection.execute(statement)]


# Statements that write a whole provider tree: a handful per tree instead of a handful per provider.


_traits = tables.provider_traits


class NewProvider(NamedTuple):
    """A provider to insert; ids of parent and root, None for a root."""

    uuid: str
    name: str
    parent_id: int | None
    root_id: int | None
    generation: int = 0


def ids_below(transaction: Transaction, root_ids: Collection[int]) -> set[int]:
    """Return the ids of all providers of the trees."""
    statement = sa.select(_self.c.id).where(_self.c.root_provider_id.in_(sorted(root_ids)))
    return set(transaction.execute(statement).scalars())


_INSERT = RowStatement(
    """
    INSERT INTO resource_providers (uuid, name, generation, parent_provider_id, root_provider_id, cluster_id,
                                    created_at, revision)
    SELECT given.uuid, given.name, given.generation, given.parent_id, given.root_id, :cluster_id,
           :now, {stamp}
      FROM {rows} WHERE true
    ON CONFLICT DO NOTHING RETURNING uuid, id
    """,
    "given",
    {
        "uuid": "varchar",
        "name": "varchar",
        "parent_id": "integer",
        "root_id": "integer",
        "generation": "integer",
    },
    sa.bindparam("now", type_=sa.DateTime),
    sa.bindparam("cluster_id", type_=sa.Integer),
)
_ADD_TRAITS = RowStatement(
    """
    INSERT INTO resource_provider_traits (resource_provider_id, trait_id, created_at)
    SELECT given.provider_id, given.trait_id, :now FROM {rows}
    """,
    "given",
    {"provider_id": "integer", "trait_id": "integer"},
    sa.bindparam("now", type_=sa.DateTime),
)


def insert_providers(
    transaction: Transaction, new_providers: Sequence[NewProvider], cluster_id: int | None
) -> dict[str, int]:
    """Insert providers; return their ids by uuid. Providers with a taken name or uuid are left out."""
    if not new_providers:
        return {}
    found = _INSERT.run(
        transaction, new_providers, cluster_id=cluster_id, now=transaction.now, **transaction.stamp_parameters
    )
    ids = {row[0]: row[1] for row in found}
    roots = [ids[row.uuid] for row in new_providers if row.root_id is None and row.uuid in ids]
    if roots:
        transaction.execute(sa.update(_self).where(_self.c.id.in_(roots)).values(root_provider_id=_self.c.id))
    return ids


def traits_of(connection: Executor, provider_ids: Collection[int]) -> dict[int, set[int]]:
    """Return the trait ids of providers."""
    statement = sa.select(_traits.c.resource_provider_id, _traits.c.trait_id)
    found: dict[int, set[int]] = {}
    for row in connection.execute(statement.where(_traits.c.resource_provider_id.in_(sorted(provider_ids)))):
        found.setdefault(row[0], set()).add(row[1])
    return found


def change_traits(
    transaction: Transaction,
    added: Collection[tuple[int, int]],
    removed: Collection[tuple[int, int]],
) -> None:
    """Add and remove (provider id, trait id) pairs."""
    if removed:
        place = sa.tuple_(_traits.c.resource_provider_id, _traits.c.trait_id)
        transaction.execute(sa.delete(_traits).where(place.in_(sorted(removed))))
    if added:
        _ADD_TRAITS.run(transaction, sorted(added), now=transaction.now)


def allocated(connection: Executor, provider_ids: Collection[int]) -> dict[int, list[str]]:
    """Return the consumers that hold something of the providers, by provider."""
    table = tables.allocations
    statement = (
        sa.select(table.c.resource_provider_id, table.c.consumer_id)
        .where(table.c.resource_provider_id.in_(sorted(provider_ids)))
        .distinct()
        .order_by(table.c.resource_provider_id, table.c.consumer_id)
    )
    found: dict[int, list[str]] = {}
    for row in connection.execute(statement):
        found.setdefault(row[0], []).append(row[1])
    return found


class TreeMember(NamedTuple):
    """One provider of a tree for reading; `parent_id` None for the root."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    traits: list[str]


def tree_members(connection: Executor, root_id: int) -> list[TreeMember]:
    """Return all providers of a tree with their traits, in order of ids."""
    statement = (
        sa.select(
            *_self.c["id", "uuid", "name", "generation", "parent_provider_id"],
            tables.traits.c.name,
        )
        .select_from(_self)
        .outerjoin(_traits, _traits.c.resource_provider_id == _self.c.id)
        .outerjoin(tables.traits, tables.traits.c.id == _traits.c.trait_id)
        .where(_self.c.root_provider_id == root_id)
        .order_by(_self.c.id, tables.traits.c.name)
    )
    found: dict[int, TreeMember] = {}
    for row in connection.execute(statement):
        member = found.setdefault(row[0], TreeMember(row[0], row[1], row[2], row[3], row[4], []))
        if row[5] is not None:
            member.traits.append(row[5])
    return list(found.values())


def count_classes(connection: Executor, cluster_id: int) -> int:
    """Return how many resource classes there are in inventories that imports of a cluster made."""
    uses = tables.inventories
    statement = (
        sa.select(sa.func.count(sa.distinct(uses.c.resource_class_id)))
        .join(tables.providers, tables.providers.c.id == uses.c.resource_provider_id)
        .where(tables.providers.c.cluster_id == cluster_id)
    )
    found: int = connection.execute(statement).scalar_one()
    return found


def traits_beside(connection: Executor, cluster_id: int, roots: Collection[int]) -> set[int]:
    """Return the ids of the traits of all imported providers of a cluster that are not below these roots."""
    statement = (
        sa.select(_traits.c.trait_id)
        .distinct()
        .join(_self, _self.c.id == _traits.c.resource_provider_id)
        .where(_self.c.cluster_id == cluster_id, _root_id.not_in(sorted(roots)))
    )
    return set(connection.execute(statement).scalars())
