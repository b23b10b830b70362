"""The scope of callers that are bound to clusters: the trees, aggregates, groups and consumers they see.

The clusters are in `engine.domain.scope`. For all other callers each function returns what it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache

from placement.engine.domain import scope
from placement.engine.domain.errors import Conflict, Forbidden, PlacementError
from placement.engine.forest.forest import Forest
from placement.providers.statements import clusters
from placement.storage.database import Database


def homes(database: Database) -> frozenset[int] | None:
    """Return the ids of the aggregates with the trees that may be seen, None for all trees."""
    names = scope.seen()
    if names is None:
        return None
    if not names:
        return frozenset()
    with database.read() as connection:
        return clusters.aggregates_of(connection, names)


def require_everything() -> None:
    """Raise Forbidden unless all there is may be seen: the use case knows no clusters."""
    if not scope.admits(None):
        raise Forbidden("This is told of all there is, and the token is bound to clusters.")


def aggregates(forest: Forest, ids: Mapping[str, int]) -> Mapping[str, int]:
    """Return the aggregates, id by uuid, that some provider of the forest is in.

    To a bound caller an aggregate of another cluster is one that never had a member.
    """
    if scope.seen() is None:
        return ids
    return {uuid: id_ for uuid, id_ in ids.items() if len(forest.aggregates.rows_with((id_,), forest.count))}


def group(name: str) -> str:
    """Return the name under which a group of consumers is stored, at most 255 characters.

    Groups of bound callers are by cluster and name. Both go in as a SHA-256, as a name may have 255
    characters itself.
    """
    names = scope.seen()
    if names is None:
        return name
    return f"of-clusters:{hashlib.sha256('/'.join([*sorted(names), name]).encode()).hexdigest()}"


def hidden(held: Mapping[str, Mapping[str, object]], forest: Callable[[], Forest]) -> set[str]:
    """Return the consumers that may not be seen; `held` is what each holds, by provider uuid.

    A bound caller sees a consumer that holds something, all of it in the forest that it sees. A consumer on a
    shared pool of the cluster and on a host of another cluster is hidden.
    """
    if scope.seen() is None or not held:
        return set()
    row = cache(forest().row_of_uuid)
    return {uuid for uuid, on in held.items() if not on or any(row(provider) < 0 for provider in on)}


def refusal(consumer_uuid: str, reason: PlacementError) -> PlacementError:
    """Return why a consumer may not claim; a bound caller gets one answer for all reasons, `taken`."""
    if scope.seen() is None:
        return reason
    return taken(consumer_uuid)


def taken(consumer_uuid: str) -> Conflict:
    """Return the refusal of a consumer that holds something else, here or elsewhere."""
    return Conflict(f"consumer_uuid: {consumer_uuid} already holds something else than the query asks for")
