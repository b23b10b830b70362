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


@dataclass(frozen=True, slots=True)
class ImaginedForest:
    """The forest as it would be; `like[row]` is the uuid of the host that the new root in the row copies."""

    view: View
    like: Mapping[int, str]


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


def ended(error: SearchEnded) -> Unavailable:
    """Return the error for a world that was not made in time."""
    if error.abandoned:
        return SearchTimeout("world: The caller went away before the hosts were imagined.")
    if request_scope.is_over():
        return RequestTimeout("imagining the hosts")
    return SearchTimeout(
        "world: The time was up ([placement] search_timeout) before the hosts were imagined."
    )


def most_imagined(forest: Forest) -> int:
    """Return how many providers at most are imagined beside the providers of a forest."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_TIMES * forest.count))


def imagined(
    database: Database, view: View, request: WorldRequest, aggregate: str | None, budget: Budget
) -> ImaginedForest:
    """Return the view with what is to be different; with an `aggregate`, only its hosts are known.

    Raises BadRequest naming the member, SearchTimeout, RequestTimeout.
    """
    try:
        return _WorldReading(database, view, request, aggregate).imagined(request, budget)
    except SearchEnded as error:
        raise ended(error) from error


class _WorldReading:
    def __init__(self, database: Database, view: View, request: WorldRequest, aggregate: str | None) -> None:
        self._view = view
        self._home: frozenset[int] | None = None
        if aggregate is not None:
            with database.read() as connection:
                self._home = frozenset(names.aggregate_ids(connection, [aggregate]).values())
        called = {*request.without, *(each.like for each in request.more)}
        called |= {name for each in request.inventories for name in each.hosts or ()}
        self._uuids = host_uuids(database, called)

    def imagined(self, request: WorldRequest, budget: Budget) -> ImaginedForest:
        # All that is wrong is told before anything is changed.
        reoffered = [self._reoffered(at, each) for at, each in enumerate(request.inventories)]
        added = [
            (self._row(f"world.more[{at}].like", each.like), each) for at, each in enumerate(request.more)
        ]
        self._refuse_too_many(added)
        without = self._rows("world.without", request.without)
        budget.look()
        forest, like = SimulatedForest(self._view.forest), dict[int, str]()
        for (class_id, roots), override in zip(reoffered, request.inventories, strict=True):
            budget.look()
            forest.reoffer(class_id, roots, override.allocation_ratio, override.reserved)
        for root, hosts in added:
            new = forest.repeat(root, hosts.count, budget.look)
            like |= dict.fromkeys(new, self._uuids[hosts.like])
        if without:
            forest.cut(without)
        return ImaginedForest(View(forest, SharingMap(), ScoreCache(), self._view.names), like)

    def _refuse_too_many(self, added: Sequence[tuple[int, AddedHosts]]) -> None:
        forest = self._view.forest
        most, rows = most_imagined(forest), 0
        for at, (root, each) in enumerate(added):
            rows += each.count * int(forest.providers.tree_size[root])
            if rows > most:
                raise BadRequest(
                    f"world.more[{at}].count: makes {rows} providers, at most {most} are imagined here"
                )

    def _reoffered(self, at: int, each: InventoryOverride) -> tuple[int, list[int]]:
        """Return the class and the roots of the hosts with other inventories."""
        place = f"world.inventories[{at}]"
        class_id = self._view.names.class_ids.get(each.resource_class)
        if class_id is None:
            raise BadRequest(f"{place}.resource_class: No such resource class {each.resource_class}.")
        if each.allocation_ratio is None and each.reserved is None:
            raise BadRequest(f"{place}: must have allocation_ratio or reserved")
        roots = self._view.forest.roots.tolist()
        if each.hosts is not None:
            roots = self._rows(f"{place}.hosts", each.hosts)
        return class_id, roots

    def _rows(self, place: str, called: Sequence[str]) -> list[int]:
        return [self._row(f"{place}[{at}]", name) for at, name in enumerate(called)]

    def _known(self, name: str) -> int:
        uuid = self._uuids.get(name)
        row = -1 if uuid is None else self._view.forest.row_of_uuid(uuid)
        forest = self._view.forest
        if row < 0 or forest.providers.root[row] != row:
            return -1
        # A caller that may see one cluster only must not learn what there is elsewhere.
        return -1 if self._home is not None and not self._home & forest.aggregates.of(row) else row

    def _row(self, place: str, name: str) -> int:
        row = self._known(name)
        if row < 0:
            raise BadRequest(
                f"{place}: there is no host {name!r} here: no provider without parent is called so"
            )
        return row


def host_uuids(database: Database, called: Collection[str]) -> dict[str, str]:
    """Return the uuids of hosts that are called by name or uuid; unknown names are left out."""
    unknown = {name for name in called if normalize_uuid(name) is None}
    found = {name: uuid for name in called if (uuid := normalize_uuid(name)) is not None}
    if unknown:
        with database.read() as connection:
            found |= providers.uuids_by_name(connection, unknown)
    return found
