"""The Kubernetes nodes that take no new pods: cordoned, or closed by the synchronization."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from placement.common.manifest import CLOSED
from placement.engine.domain.portions import portions
from placement.storage import tables
from placement.storage.database import Executor
from placement.storage.tables import TextMember

_AT_ONCE = 500
_nodes = tables.nodes.c
# The databases write true as 1 or as true.
_cordoned = TextMember(_nodes.manifest, "spec", "unschedulable").in_(("1", "true"))
_closed = TextMember(_nodes.manifest, "metadata", "annotations", CLOSED).is_not(None)
_statement = sa.select(_nodes.resource_provider_id).where(sa.or_(_cordoned, _closed))


def closed_nodes(connection: Executor, roots: Collection[int] | None = None) -> set[int]:
    """Return the ids of the host providers of closed nodes, of all or among `roots`."""
    if roots is None:
        return set(connection.execute(_statement).scalars())
    found: set[int] = set()
    for some in portions(sorted(roots), _AT_ONCE):
        narrowed = _statement.where(_nodes.resource_provider_id.in_(some))
        found.update(connection.execute(narrowed).scalars())
    return found
