"""Provider trees: every provider is below one root, and its row names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from placement.providers.statements import providers
from placement.server.invariants.invariant import Invariant
from placement.storage import tables
from placement.storage.database import Transaction

# From the roots down, so that it ends whatever loops there are.
_REACHED = """
    WITH RECURSIVE reached(id, root_id) AS (
        SELECT id, id FROM resource_providers WHERE parent_provider_id IS NULL
        UNION ALL
        SELECT child.id, reached.root_id
        FROM resource_providers AS child JOIN reached ON child.parent_provider_id = reached.id
    )
"""
_WRONG_ROOTS = sa.text(f"""
    {_REACHED} SELECT provider.id, provider.uuid, provider.name, root.uuid AS root, root_id
    FROM resource_providers AS provider
    JOIN reached ON reached.id = provider.id
    JOIN resource_providers AS root ON root.id = root_id
    WHERE COALESCE(provider.root_provider_id, 0) <> root_id
    ORDER BY provider.id
""")


def _set_roots(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set the roots as they are once the rows are locked: a move may have been committed before that."""
    wrong, ids = [row.id for row in rows], tables.providers.c.id
    transaction.execute(sa.select(ids).where(ids.in_(wrong)).order_by(ids).with_for_update())
    roots = {row.id: row.root_id for row in transaction.execute(_WRONG_ROOTS) if row.id in wrong}
    if roots:
        root = sa.case(roots, value=ids)
        transaction.execute(sa.update(tables.providers).where(ids.in_(roots)).values(root_provider_id=root))
        providers.touch(transaction, list(roots))


TREES = (
    Invariant(
        "trees-have-a-root",
        sa.text(f"""
            {_REACHED} SELECT provider.uuid, provider.name FROM resource_providers AS provider
            LEFT JOIN reached ON reached.id = provider.id
            WHERE reached.id IS NULL
            ORDER BY provider.id
        """),
        "provider {uuid} ({name}): its parents form a loop, or end at one that is not there",
    ),
    Invariant(
        "roots-are-right",
        _WRONG_ROOTS,
        "provider {uuid} ({name}): its root is {root}, and its row says otherwise",
        remedy="make {root} its root",
        mend=_set_roots,
    ),
)
