"""Provider trees: every provider is below one root, and says which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.checks.invariant import Invariant, Repair
from placement.storage.database import Transaction
from placement.storage.statements import providers

_providers = tables.providers
_child = tables.providers.alias("child")
# From the roots down, so that it ends whatever loops there are.
_reached = (
    sa.select(_providers.c.id, _providers.c.id.label("root_id"))
    .where(_providers.c.parent_provider_id.is_(None))
    .cte("reached", recursive=True)
)
_reached = _reached.union_all(
    sa.select(_child.c.id, _reached.c.root_id).join(_reached, _child.c.parent_provider_id == _reached.c.id)
)
_root = tables.providers.alias("root")


def _set_roots(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Nobody moves trees meanwhile, so the roots are those that were found."""
    ids = [row.id for row in rows]
    transaction.execute(
        transaction.locked(sa.select(_providers.c.id).where(_providers.c.id.in_(ids)).order_by("id"))
    )
    root = sa.select(_reached.c.root_id).where(_reached.c.id == _providers.c.id).scalar_subquery()
    transaction.execute(sa.update(_providers).where(_providers.c.id.in_(ids)).values(root_provider_id=root))
    providers.touch(transaction, ids)


INVARIANTS = (
    Invariant(
        "trees-have-a-root",
        sa.select(_providers.c.uuid, _providers.c.name)
        .outerjoin(_reached, _reached.c.id == _providers.c.id)
        .where(_reached.c.id.is_(None))
        .order_by(_providers.c.id),
        "provider {uuid} ({name}): its parents form a loop, or end at one that is not there",
    ),
    Invariant(
        "roots-are-right",
        sa.select(_providers.c.id, _providers.c.uuid, _providers.c.name, _root.c.uuid.label("root"))
        .join(_reached, _reached.c.id == _providers.c.id)
        .join(_root, _root.c.id == _reached.c.root_id)
        .where(_providers.c.root_provider_id.is_distinct_from(_reached.c.root_id))
        .order_by(_providers.c.id),
        "provider {uuid} ({name}): its root is {root}, and its row says otherwise",
        repair=Repair("make {root} its root", _set_roots),
    ),
)
