"""Statements that lock and change resource providers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import sqlalchemy as sa

from placement.domain.audit import Action, Kind
from placement.domain.portions import portions
from placement.storage import tables
from placement.storage.backends.backend import Backend
from placement.storage.backends.types import Revision
from placement.storage.changes.change_log import PROVIDER_DELETED, record_change
from placement.storage.content_rule import CONTENT
from placement.storage.database import Transaction

# Any number; all processes that re-parent providers of one database must use the same.
_TREES_LOCK = 0x706C6163
_AT_ONCE = 5000


_self = tables.providers


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
    _self.c.id,
    _self.c.uuid,
    _self.c.generation,
    sa.func.coalesce(_self.c.root_provider_id, _self.c.id),
    _self.c.parent_provider_id,
    _self.c.cluster_id,
    _self.c.name,
)


def lock(transaction: Transaction, uuid: str) -> LockedProvider | None:
    """Lock one provider."""
    row = transaction.execute(transaction.locked(_lockable.where(_self.c.uuid == uuid))).first()
    return LockedProvider(*row) if row else None


def lock_all(
    transaction: Transaction, uuids: Collection[str], ids: Collection[int] = ()
) -> list[LockedProvider]:
    """Lock providers by uuid or id, in ascending order of ids so that no two writers wait for each other."""
    among = transaction.backend.among
    wanted = among(_self.c.uuid, sorted(uuids))
    if ids:
        wanted = wanted | among(_self.c.id, sorted(ids))
    statement = transaction.locked(_lockable.where(wanted).order_by(_self.c.id))
    return [LockedProvider(*row) for row in transaction.execute(statement)]


@cache
def _lock_and_stamp(backend: type[Backend]) -> sa.Update:
    """Lock in ascending order of ids, then stamp, in one statement; some get the next generation too."""
    named = sa.or_(
        _self.c.uuid.in_(sa.bindparam("uuids", expanding=True)),
        _self.c.id.in_(sa.bindparam("ids", expanding=True)),
    )
    locked = sa.select(_self.c.id).where(named).order_by(_self.c.id).with_for_update().cte("held")
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
    """Lock providers whose use changes and stamp them, raising the generation of those in `raised`.

    Their ids by uuid. What the transaction changes of them beside their use it stamps again, by `advance`.
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


def insert(transaction: Transaction, uuid: str, name: str, parent: LockedProvider | None = None) -> int:
    """A new provider of generation 0; returns its id. Unique keys are the caller's to have checked."""
    values = {
        "uuid": uuid,
        "name": name,
        "generation": 0,
        "parent_provider_id": parent.id if parent else None,
        "root_provider_id": parent.root_id if parent else None,
        "revision": transaction.stamp,
        "created_at": transaction.now,
    }
    statement = transaction.insert_or_ignore(_self).values(values).returning(_self.c.id)
    id_ = transaction.execute(statement).scalar_one_or_none()
    if id_ is None:
        return 0
    if parent is None:
        transaction.execute(sa.update(_self).where(_self.c.id == id_).values(root_provider_id=id_))
    return int(id_)


def rename(transaction: Transaction, id_: int, name: str) -> None:
    """Change the name; the generation stays."""
    transaction.execute(
        sa.update(_self)
        .where(_self.c.id == id_)
        .values(name=name, updated_at=transaction.now, revision=transaction.stamp)
    )


def name_taken(transaction: Transaction, name: str, other_than: int = 0) -> bool:
    """Whether another provider has the name."""
    statement = sa.select(_self.c.id).where(_self.c.name == name, _self.c.id != other_than)
    return transaction.execute(statement).first() is not None


def subtree(transaction: Transaction, locked: LockedProvider) -> set[int]:
    """The ids of a provider and all below it."""
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
    transaction: Transaction, locked: LockedProvider, parent: LockedProvider | None, members: Iterable[int]
) -> None:
    """Put a provider with its subtree (`members`) below another parent, or make it a root."""
    parent_id = parent.id if parent else None
    root_id = parent.root_id if parent else locked.id
    for some in portions(sorted(members), _AT_ONCE):
        transaction.execute(
            sa.update(_self)
            .where(_self.c.id.in_(some))
            .values(root_provider_id=root_id, revision=transaction.stamp)
        )
    transaction.execute(
        sa.update(_self)
        .where(_self.c.id == locked.id)
        .values(parent_provider_id=parent_id, updated_at=transaction.now)
    )


def touch(transaction: Transaction, raised: Collection[int], unraised: Collection[int] = ()) -> None:
    """Stamp providers; those in `raised` get the next generation too."""
    advance(transaction, {**dict.fromkeys(unraised, 0), **dict.fromkeys(raised, 1)})


def advance(transaction: Transaction, steps: Mapping[int, int]) -> None:
    """Stamp providers, of which anything may have changed, and raise the generation of each by its step."""
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
    """Whether some provider has this one as parent."""
    return (
        transaction.execute(sa.select(_self.c.id).where(_self.c.parent_provider_id == id_)).first()
        is not None
    )


def has_allocations(transaction: Transaction, id_: int) -> bool:
    """Whether some consumer holds something of this provider."""
    table = tables.allocations
    return (
        transaction.execute(sa.select(table.c.id).where(table.c.resource_provider_id == id_)).first()
        is not None
    )


def delete(transaction: Transaction, ids: Sequence[int]) -> None:
    """Remove providers, children before parents, with their inventories and memberships; record it."""
    for table in (tables.inventories, tables.provider_traits, tables.provider_aggregates):
        transaction.execute(sa.delete(table).where(table.c.resource_provider_id.in_(ids)))
    transaction.execute(
        sa.update(_self).where(_self.c.id.in_(ids)).values(parent_provider_id=None, root_provider_id=None)
    )
    gone = sa.delete(_self).where(_self.c.id.in_(ids)).returning(_self.c.uuid, _self.c.name)
    for uuid, name in transaction.execute(gone):
        transaction.record(Action.DELETE, Kind.PROVIDER, uuid, before={"name": name})
    record_change(transaction, PROVIDER_DELETED, ids)
