"""What-if questions: what is to be different, by names; only an altered copy is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, RequestTimeout, SearchTimeout, Unavailable
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.request_scope import Full, WaitingRoom
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.ranking import ScoreCache
from placement.providers.statements import names, providers
from placement.providers.view import View
from placement.storage.database import Database

# The most new providers in a copy: a multiple of the fleet, but at least and at most these numbers.
_MOST_TIMES, _LEAST_ROWS, _MOST_ROWS = 4, 1_000, 100_000
# One process holds one altered copy at a time.
_imagining = WaitingRoom(1)


@dataclass(frozen=True, slots=True)
class InventoryOverride:
    """Inventories of a class with another ratio or reserved amount, on some hosts or all (None)."""

    resource_class: str
    allocation_ratio: float | None = None
    reserved: int | None = None
    hosts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AddedHosts:
    """New hosts like a given one, `count` in number, without allocations."""

    like: str
    count: int


@dataclass(frozen=True, slots=True)
class WorldRequest:
    """The differences of an imagined world; hosts by name or uuid."""

    without: tuple[str, ...] = ()
    inventories: tuple[InventoryOverride, ...] = ()
    more: tuple[AddedHosts, ...] = ()


NOTHING_DIFFERENT = WorldRequest()


ImaginedForest = tuple[View, Mapping[int, str]]
"""The view as it would be, and the uuid of the host that each new root copies, by the root's row."""


@contextmanager
def imagining(request: WorldRequest) -> Iterator[None]:
    """Let the block look at a world while no other thread does. Raises Unavailable."""
    if request == NOTHING_DIFFERENT:
        yield
        return
    try:
        with _imagining.entered():
            yield
    except Full:
        raise Unavailable("world: another one is looked at, and others wait already; ask again") from None


def timeout(ended: SearchEnded, gone: str, during: str, too_long: str) -> Unavailable:
    """Return the error for work that ended early: the caller went away, or which time was up."""
    if ended.abandoned:
        return SearchTimeout(gone)
    return RequestTimeout(during) if request_scope.is_over() else SearchTimeout(too_long)


def not_imagined(ended: SearchEnded) -> Unavailable:
    """Return the error for a world that was not made in time."""
    before = "before the hosts were imagined."
    too_long = f"world: The time was up ([placement] search_timeout) {before}"
    return timeout(ended, f"world: The caller went away {before}", "imagining the hosts", too_long)


def most_imagined(forest: Forest) -> int:
    """Return how many providers at most are imagined beside the providers of a forest."""
    # Its rows would be those of all clusters, also where the caller sees only some.
    return min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_TIMES * len(forest)))


def imagined(
    database: Database, view: View, request: WorldRequest, aggregate: str | None, budget: Budget
) -> ImaginedForest:
    """Return the view with what is to be different; with an `aggregate`, only its hosts are known.

    Raises BadRequest naming the member, SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return view, {}
    forest, home = view.forest, None
    if aggregate is not None:
        with database.read() as connection:
            home = frozenset(names.aggregate_ids(connection, [aggregate]).values())
    called = {*request.without, *(each.like for each in request.more)}
    uuids = host_uuids(database, called | {name for each in request.inventories for name in each.hosts or ()})

    def row_of(place: str, name: str) -> int:
        return _row(view, home, uuids.get(name), f"{place}: there is no host {name!r} here")

    def rows_of(place: str, called: Sequence[str]) -> list[int]:
        return [row_of(f"{place}[{at}]", name) for at, name in enumerate(called)]

    # All findings are raised before anything is changed.
    reoffered = []
    for at, other in enumerate(request.inventories):
        place = f"world.inventories[{at}]"
        class_id = view.names.class_ids.get(other.resource_class)
        if class_id is None:
            raise BadRequest(f"{place}.resource_class: No such resource class {other.resource_class}.")
        if other.allocation_ratio is None and other.reserved is None:
            raise BadRequest(f"{place}: must have allocation_ratio or reserved")
        roots = forest.roots.tolist() if other.hosts is None else rows_of(f"{place}.hosts", other.hosts)
        reoffered.append((class_id, roots, other))
    added = [(row_of(f"world.more[{at}].like", each.like), each) for at, each in enumerate(request.more)]
    most, rows = most_imagined(forest), 0
    for at, (root, each) in enumerate(added):
        rows += each.count * int(forest.providers.tree_size[root])
        if rows > most:
            raise BadRequest(
                f"world.more[{at}].count: makes {rows} providers, at most {most} are imagined here"
            )
    without = rows_of("world.without", request.without)
    try:
        budget.look()
        altered, like = SimulatedForest(forest), dict[int, str]()
        for class_id, roots, other in reoffered:
            budget.look()
            altered.reoffer(class_id, roots, other.allocation_ratio, other.reserved)
        for root, each in added:
            new = altered.repeat(root, each.count, budget.look)
            like |= dict.fromkeys(new, uuids[each.like])
    except SearchEnded as error:
        raise not_imagined(error) from error
    if without:
        altered.cut(without)
    return View(altered, SharingMap(), ScoreCache(), view.names), like


def _row(view: View, home: frozenset[int] | None, uuid: str | None, refusal: str) -> int:
    """Return the row of a host. Raises BadRequest if it is none, or none of the aggregates `home`."""
    forest = view.forest
    row = -1 if uuid is None else forest.row_of_uuid(uuid)
    is_host = row >= 0 and forest.providers.root[row] == row
    # A caller that may see one cluster only must not learn what there is elsewhere.
    if not is_host or (home is not None and not home & forest.aggregates.of(row)):
        raise BadRequest(f"{refusal}: no provider without parent is called so")
    return row


def host_uuids(database: Database, called: Collection[str]) -> dict[str, str]:
    """Return the uuids of hosts that are called by name or uuid; unknown names are left out."""
    unknown = {name for name in called if normalize_uuid(name) is None}
    found = {name: uuid for name in called if (uuid := normalize_uuid(name)) is not None}
    if unknown:
        with database.read() as connection:
            found |= providers.uuids_by_name(connection, unknown)
    return found
