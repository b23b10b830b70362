"""What-if questions: differences by names, applied to a copy of the forest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult
from placement.engine.domain import errors, request_scope
from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.waiting_room import Full, WaitingRoom
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.ranking import ScoreCache
from placement.providers.statements import names, providers
from placement.providers.view import ForestKeeper, View
from placement.storage.database import Database

# The most new providers in a copy: a multiple of the fleet, but at least and at most these numbers.
_MOST_TIMES, _LEAST_ROWS, _MOST_ROWS = 4, 1_000, 100_000
# One process holds one altered copy at a time.
_waiting_room = WaitingRoom(1)


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
        with _waiting_room.entered():
            yield
    except Full:
        raise errors.Unavailable(
            "world: other imagined changes are being computed, and more wait; try again"
        ) from None


def timeout(ended: SearchEnded, gone: str, during: str, too_long: str) -> errors.Unavailable:
    """Return the error for work that ended early: the caller went away, or which time was up."""
    if ended.abandoned:
        return errors.SearchTimeout(gone)
    return errors.RequestTimeout(during) if request_scope.is_over() else errors.SearchTimeout(too_long)


def not_imagined(ended: SearchEnded) -> errors.Unavailable:
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
    """Return the view with these differences; with an `aggregate`, only its hosts are known.

    Raises BadRequest naming the member, SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return view, {}
    hosts = _RequestedHosts(database, view, request, aggregate)
    # All findings are raised before anything is changed.
    overrides = _overrides(view, request, hosts)
    added = [
        (hosts.row(errors.BODY / "world" / "more" / at / "like", each.like), each)
        for at, each in enumerate(request.more)
    ]
    _check_number(view.forest, [(root, each.count) for root, each in added])
    without = hosts.rows(errors.BODY / "world" / "without", request.without)
    try:
        budget.look()
        altered, like = SimulatedForest(view.forest), dict[int, str]()
        for class_id, roots, override in overrides:
            budget.look()
            altered.reoffer(class_id, roots, override.allocation_ratio, override.reserved)
        for root, each in added:
            new = altered.repeat(root, each.count, budget.look)
            like |= dict.fromkeys(new, hosts.uuids[each.like])
    except SearchEnded as error:
        raise not_imagined(error) from error
    if without:
        altered.cut(without)
    return View(altered, SharingMap(), ScoreCache(), view.names), like


class _RequestedHosts:
    """The hosts that a request names, by their rows in a view."""

    def __init__(self, database: Database, view: View, request: WorldRequest, aggregate: str | None) -> None:
        self._forest = view.forest
        self._home: frozenset[int] | None = None
        if aggregate is not None:
            with database.read() as connection:
                self._home = frozenset(names.aggregate_ids(connection, [aggregate]).values())
        called = {*request.without, *(each.like for each in request.more)}
        called |= {name for each in request.inventories for name in each.hosts or ()}
        self.uuids = host_uuids(database, called)

    def row(self, place: errors.RequestPlace, name: str) -> int:
        """Return the row of a host. Raises BadRequest naming the place if it is none, or not of home."""
        uuid = self.uuids.get(name)
        row = -1 if uuid is None else self._forest.row_of_uuid(uuid)
        is_host = row >= 0 and self._forest.providers.root[row] == row
        # A caller that may see one cluster only must not learn what there is elsewhere.
        if not is_host or (self._home is not None and not self._home & self._forest.aggregates.of(row)):
            raise errors.BadRequest(
                f"there is no host {name!r} here: no root provider has this name",
                place=place,
                value=name,
                known=errors.NamesOf(errors.NameKind.HOST),
            )
        return row

    def rows(self, place: errors.RequestPlace, called: Sequence[str]) -> list[int]:
        """Return the rows of hosts in a list. Raises BadRequest naming the place in it."""
        return [self.row(place / at, name) for at, name in enumerate(called)]


def _overrides(
    view: View, request: WorldRequest, hosts: _RequestedHosts
) -> list[tuple[int, list[int], InventoryOverride]]:
    """Return each override with the id of its class and the rows of its hosts. Raises BadRequest."""
    found = []
    for at, override in enumerate(request.inventories):
        place = errors.BODY / "world" / "inventories" / at
        class_id = view.names.class_ids.get(override.resource_class)
        if class_id is None:
            kind = errors.NameKind.RESOURCE_CLASS
            raise errors.no_such(kind, (override.resource_class,), place / "resource_class")
        if override.allocation_ratio is None and override.reserved is None:
            raise errors.BadRequest("must have allocation_ratio or reserved", place=place)
        if override.hosts is None:
            roots = view.forest.roots.tolist()
        else:
            roots = hosts.rows(place / "hosts", override.hosts)
        found.append((class_id, roots, override))
    return found


def _check_number(forest: Forest, added: Sequence[tuple[int, int]]) -> None:
    """Raise BadRequest where so many copies of hosts, by row, are more providers than may be imagined."""
    most, rows = most_imagined(forest), 0
    for at, (root, count) in enumerate(added):
        rows += count * int(forest.providers.tree_size[root])
        if rows > most:
            raise errors.BadRequest(
                f"makes {rows} providers, at most {most} are allowed here",
                place=errors.BODY / "world" / "more" / at / "count",
            )


def host_uuids(database: Database, called: Collection[str]) -> dict[str, str]:
    """Return the uuids of hosts that are called by name or uuid; unknown names are left out."""
    unknown = {name for name in called if normalize_uuid(name) is None}
    found = {name: uuid for name in called if (uuid := normalize_uuid(name)) is not None}
    if unknown:
        with database.read() as connection:
            found |= providers.uuids_by_name(connection, unknown)
    return found


class ImaginedSearch:
    """A use case that finds where a request would fit in another world."""

    for_bound_callers = True

    def __init__(self, database: Database, keeper: ForestKeeper, candidates: CandidateSearch) -> None:
        self._database = database
        self._keeper = keeper
        self._candidates = candidates

    def find(self, query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> SearchResult:
        """Return where a query would fit. Raises as CandidateSearch.find, and naming the world's member."""
        with imagining(world):
            view, budget = self._keeper.current(), self._candidates.budget()
            seen, _ = imagined(self._database, view, world, options.cluster_aggregate, budget)
            return self._candidates.find_in(seen, query, options)
