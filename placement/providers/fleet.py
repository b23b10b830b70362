"""The whole fleet for operators: a figure for every host, and the host behind a figure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from placement.engine.domain.errors import BadRequest, NameKind, NamesOf, no_such, parameter
from placement.engine.forest import fleet as forest_fleet
from placement.engine.forest import totals
from placement.providers.called import CalledUuids
from placement.providers.statements import clusters, providers
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.statements.providers import Named
from placement.providers.view import ForestKeeper, View
from placement.storage.database import Database

_CPUS, _MEMORY = "PCPU", "MEMORY_MB"
COMMON_REQUEST = (4, 16384)
"""Cores and MiB of the request for which stranded cores are of no use (docs/packing.md)."""


class FleetFigure(StrEnum):
    """A figure that is shown of each host, as a part of a whole."""

    USE = "use"
    CORES = "cores"
    STRANDED = "stranded"


class HostGroup(NamedTuple):
    """Hosts that are counted together: a cluster, the members of an aggregate, or hosts in neither.

    `name` is a cluster or the uuid of an aggregate, `shown` the name that people know it by, and `aggregate`
    the uuid of the aggregate of either.
    """

    name: str
    kind: str
    shown: str
    aggregate: str = ""


_CLUSTER = "cluster"
_NEITHER = HostGroup("neither", "none", "neither")


class HeatMap(NamedTuple):
    """All hosts and the figure of each, in the order of the groups; `closed` are places of closed ones."""

    hosts: forest_fleet.Fleet
    shares: forest_fleet.TreeShares
    groups: list[HostGroup]
    closed: list[int]


class HostFigure(NamedTuple):
    """One host, or shared storage, and its figure; `level` is None if it has nothing of that.

    `is_closed`: it takes no new consumers.
    """

    id: int
    uuid: str
    name: str
    group: HostGroup
    is_storage: bool
    part: int
    whole: int
    level: int | None
    is_closed: bool


class Overfull(NamedTuple):
    """An inventory with more in use than there is, so that requests for it are refused."""

    uuid: str
    name: str
    resource_class: str
    used: int
    capacity: int


class QueryNames(NamedTuple):
    """The resource classes that some provider offers, and the traits that some provider has."""

    classes: Sequence[str] = ()
    traits: Sequence[str] = ()


class UsedCapacity(NamedTuple):
    """The capacity of a resource class and its usage, in units of the class."""

    capacity: int
    used: int


class OpenState(StrEnum):
    """Whether a host takes new consumers: a closed one is disabled by nova, or a cordoned node."""

    OPEN = "open"
    CLOSED = "closed"


class HostUse(NamedTuple):
    """A host with the capacity and use of its tree by class; `cluster` is None for a host of no cluster."""

    uuid: str
    name: str
    cluster: str | None
    state: OpenState
    resources: Mapping[str, UsedCapacity]


class ClusterUse(NamedTuple):
    """The number of hosts of a cluster, with the capacity and use of their trees by class."""

    hosts: int
    resources: Mapping[str, UsedCapacity]


class Hosts:
    """A use case that looks at all hosts at once."""

    for_bound_callers = True

    def __init__(self, database: Database, forest: ForestKeeper) -> None:
        self._database = database
        self._forest = forest
        self._called = CalledUuids(database, forest)

    def names(self) -> QueryNames:
        """Return what queries can ask for, nothing while the forest is not loaded. Raises Unavailable."""
        view = self._forest.latest()
        if view is None:
            return QueryNames()
        offered = {id_ for id_, column in view.forest.inventories.items() if column.count}
        carried = frozenset[int]().union(*view.forest.traits.sets)
        traits = (name for name, id_ in view.names.trait_ids.items() if id_ in carried)
        return QueryNames(sorted(map(view.names.classes.__getitem__, offered)), sorted(traits))

    def look(self, cluster: str | None = None, aggregate: str | None = None) -> FleetSnapshot:
        """Return all hosts, or these in a cluster and an aggregate, as they are now.

        An aggregate is called by name or UUID. Raises BadRequest, Unavailable.
        """
        view = self._forest.current()
        with self._database.read() as connection:
            aggregates = clusters.aggregates_called(connection)
        only: list[int] = []
        if cluster is not None:
            only = [each.id for each in aggregates if each.cluster == cluster]
            if not only:
                with self._database.read() as connection:
                    words = clusters.none_found(connection, cluster)
                raise BadRequest(
                    words,
                    place=parameter("cluster"),
                    value=cluster,
                    known=NamesOf(NameKind.CLUSTER),
                )
        if aggregate is not None:
            (uuid,) = self._called.aggregates({aggregate: parameter("aggregate")}, cluster).values()
            # One that no provider was ever in has no hosts.
            only += [each.id for each in aggregates if each.uuid == uuid] or [totals.NO_AGGREGATE]
        of_clusters = frozenset(each.id for each in aggregates if each.cluster)
        known = {
            each.id: HostGroup(
                each.cluster or each.uuid,
                _CLUSTER if each.cluster else "aggregate",
                each.name or each.uuid,
                each.uuid,
            )
            for each in aggregates
        }
        sharing = view.sharing.of(view.forest, view.names.trait_ids[SHARING_TRAIT]).providers
        named = frozenset(each.id for each in aggregates if each.name)
        # A host may be in several clusters; then it is shown in the one that was asked for. In no cluster, it
        # is shown in an aggregate that people know by its name, before one that is a UUID.
        preferred = [{only[0]} if only else of_clusters, named]
        fleet = forest_fleet.fleet_of(view.forest, preferred, only, sharing)
        open_hosts = self._forest.open_hosts(view)
        closed: list[int] = []
        if open_hosts is not None:
            closed = forest_fleet.hosts_without(fleet, open_hosts.among(view.forest, fleet.roots))
        return FleetSnapshot(self._database, view, known, fleet, closed)


class FleetSnapshot:
    """Hosts as of one moment, in groups."""

    def __init__(
        self,
        database: Database,
        view: View,
        known: Mapping[int, HostGroup],
        fleet: forest_fleet.Fleet,
        closed: Sequence[int],
    ) -> None:
        self._database = database
        self._view = view
        self._known = known
        self._fleet = fleet
        # The places of closed hosts.
        self._closed = frozenset(closed)

    def classes(self) -> list[str]:
        """Return the names of the classes that some provider offers."""
        names = self._view.names.classes
        offered = (id_ for id_, column in self._view.forest.inventories.items() if column.count)
        return sorted(names[class_id] for class_id in offered if class_id in names)

    def most_used(self, classes: Sequence[str]) -> str:
        """Return the class, of these, with the most use over all hosts; of several the most offered one."""
        return max(classes, key=lambda name: self._shares(FleetFigure.USE, name).weight)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self._fleet.roots) - self._fleet.storage

    @property
    def closed(self) -> int:
        """How many of the hosts are closed."""
        return len(self._closed)

    @property
    def storage(self) -> int:
        """How many providers of shared storage there are, which are no hosts."""
        return self._fleet.storage

    def counted(self) -> dict[str, int]:
        """Return how many hosts each group has, by its name."""
        groups = (self._known.get(group, _NEITHER).name for group in self._fleet.groups)
        return dict(zip(groups, self._fleet.counts(), strict=True))

    def members(self) -> dict[str, int]:
        """Return how many hosts each cluster and aggregate has; a host counts in all that it is in."""
        counts = forest_fleet.hosts_of_aggregates(self._view.forest, self._fleet)
        known = {**self._known, totals.NO_AGGREGATE: _NEITHER}
        return {known[id_].name: count for id_, count in counts.items() if id_ in known}

    def called(self) -> dict[str, str]:
        """Return the shown names of clusters and aggregates, by the names of their groups."""
        return {group.name: group.shown for group in self._known.values()}

    def heat_map(self, figure: FleetFigure, resource_class: str) -> HeatMap:
        """Return the figures of all hosts. Raises BadRequest for an unknown class, as `of` does."""
        groups = [self._known.get(group, _NEITHER) for group in self._fleet.groups]
        return HeatMap(self._fleet, self._shares(figure, resource_class), groups, sorted(self._closed))

    def of(self, ids: Sequence[int], figure: FleetFigure, resource_class: str) -> list[HostFigure]:
        """Return the hosts with these storage ids that are there. Raises BadRequest."""
        places = [place for place in forest_fleet.places_of(self._fleet, ids) if place is not None]
        return self._reported(self._shares(figure, resource_class), places)

    def ranked(
        self, figure: FleetFigure, resource_class: str, start: int, count: int, *, rising: bool = False
    ) -> tuple[list[HostFigure], int]:
        """Return some hosts in the order of their figures, and how many there are. Raises BadRequest."""
        shares = self._shares(figure, resource_class)
        places = shares.ranked(rising=rising)
        return self._reported(shares, places[start : start + count]), len(places)

    def roomiest(self, resource_class: str) -> HostFigure | None:
        """Return the host with most left of a class, None if there is no host. Raises BadRequest."""
        shares = self._shares(FleetFigure.USE, resource_class)
        places = [shares.most_left(~self._fleet.is_storage)] if self.hosts else []
        return next(iter(self._reported(shares, places)), None)

    def listed(self, after: int, count: int) -> tuple[list[HostUse], int | None]:
        """Return the next hosts by storage id, and the id where the following page begins.

        Shared storage is no host.
        """
        places = forest_fleet.hosts_after(self._fleet, after, count + 1)
        ids = {place: int(self._fleet.ids[place]) for place in places[:count]}
        rows = self._named(set(ids.values()))
        found = []
        for place, id_ in ids.items():
            # One that was deleted since has no row any more.
            if id_ in rows:
                group = self._known.get(self._fleet.groups[int(self._fleet.group_of[place])], _NEITHER)
                cluster = group.name if group.kind == _CLUSTER else None
                used = {name: share.at(place) for name, share in self._uses.items()}
                state = OpenState.CLOSED if place in self._closed else OpenState.OPEN
                found.append(HostUse(rows[id_].uuid, rows[id_].name, cluster, state, _by_class(used)))
        return found, ids[places[count - 1]] if len(places) > count else None

    def by_cluster(self) -> dict[str, ClusterUse]:
        """Return the hosts, capacity and use of each cluster that has some; a host counts in one of them."""
        return {group.name: use for group, use in self.by_group().items() if group.kind == _CLUSTER}

    def by_group(self, classes: set[str] | None = None) -> dict[HostGroup, ClusterUse]:
        """Return the hosts, capacity and use of each group, of some classes; a host counts in one of them."""
        if classes is None:
            uses = self._uses
        else:
            offered = classes.intersection(self.classes())
            uses = {name: self._shares(FleetFigure.USE, name) for name in offered}
        sums = {name: forest_fleet.by_group(self._fleet, share) for name, share in uses.items()}
        found = {}
        for at, (id_, hosts) in enumerate(zip(self._fleet.groups, self._fleet.counts(), strict=True)):
            used = {name: amounts[at] for name, amounts in sums.items()}
            found[self._known.get(id_, _NEITHER)] = ClusterUse(hosts, _by_class(used))
        return found

    def level_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the use of each host in percent, by class, as `levels_of` reads it."""
        return forest_fleet.level_blocks(self._fleet, self._uses)

    @cached_property
    def _uses(self) -> dict[str, forest_fleet.TreeShares]:
        return {name: self._shares(FleetFigure.USE, name) for name in self.classes()}

    def overfull(self, most: int) -> tuple[list[Overfull], int]:
        """Return at most `most` inventories with more in use than there is, and how many there are."""
        found = forest_fleet.overfull(self._view.forest)
        shown = found[:most]
        names = self._named({row[0] for row in shown})
        classes = self._view.names.classes
        reported = [
            Overfull(names[id_].uuid, names[id_].name, classes[class_id], used, most_)
            for id_, class_id, used, most_ in shown
            if id_ in names and class_id in classes
        ]
        return reported, len(found)

    def _reported(self, shares: forest_fleet.TreeShares, places: Sequence[int]) -> list[HostFigure]:
        ids = {place: int(self._fleet.ids[place]) for place in places}
        rows = self._named(set(ids.values()))
        levels = shares.levels
        reported = []
        for place, id_ in ids.items():
            # One that was deleted since has no row any more.
            if id_ in rows:
                level = int(levels[place])
                group = self._known.get(self._fleet.groups[int(self._fleet.group_of[place])], _NEITHER)
                is_storage = bool(self._fleet.is_storage[place])
                figures = (*shares.at(place), None if level == forest_fleet.NOTHING else level)
                named = (id_, rows[id_].uuid, rows[id_].name, group, is_storage)
                reported.append(HostFigure(*named, *figures, place in self._closed))
        return reported

    def _named(self, ids: Collection[int]) -> dict[int, Named]:
        if not ids:
            return {}
        with self._database.read() as connection:
            return providers.named(connection, ids)

    def _shares(self, figure: FleetFigure, resource_class: str) -> forest_fleet.TreeShares:
        view, fleet = self._view, self._fleet
        ids = view.names.class_ids
        if figure is FleetFigure.USE:
            if resource_class not in ids:
                raise no_such(NameKind.RESOURCE_CLASS, (resource_class,), parameter("class"))
            return forest_fleet.shares_in_use(view.forest, fleet, ids[resource_class])
        if figure is FleetFigure.CORES:
            return forest_fleet.free_cores(view.forest, fleet, ids[_CPUS], ids[_MEMORY])
        return forest_fleet.stranded_cores(view.forest, fleet, ids[_CPUS], ids[_MEMORY], COMMON_REQUEST)


def _by_class(used: Mapping[str, tuple[int, int]]) -> dict[str, UsedCapacity]:
    return {name: UsedCapacity(capacity, part) for name, (part, capacity) in used.items() if part or capacity}


# Capacity and its use: sums of the forest by cluster or aggregate, or by host.


_NONE = "none"


class CapacityGroup(NamedTuple):
    """The amounts that a group of hosts has of a resource class, in units of the class.

    `name` is a cluster, the uuid of an aggregate, "none" for hosts in neither, or the host.
    """

    name: str
    resource_class: str
    total: float
    reserved: float
    allocation_ratio: float
    used: float


class FleetCapacity:
    """Sums as of the last look at the database, which is seconds old at most."""

    # Figures and health are for every caller that reaches the port.
    for_bound_callers = True

    def __init__(self, database: Database, forest: ForestKeeper) -> None:
        self._database = database
        self._forest = forest

    def groups(self, *, per_host: bool = False, overlapping: bool = False) -> Iterator[CapacityGroup]:
        """Yield the sums of each group and class, nothing while the forest is not loaded. Raises Unavailable.

        Each host counts once: for its cluster, else for its oldest aggregate; with `per_host` by itself;
        with `overlapping` for its cluster and all of its aggregates.
        """
        view = self._forest.latest()
        if view is None:
            return
        with self._database.read() as connection:
            if per_host:
                names = providers.root_names(connection)
                sums = totals.by_root(view.forest)
            else:
                aggregates = clusters.aggregates_called(connection)
                # Figures of an aggregate go on when its name changes.
                names = {each.id: each.cluster or each.uuid for each in aggregates}
                of_clusters = frozenset(each.id for each in aggregates if each.cluster)
                sums = (
                    totals.by_every_aggregate(view.forest)
                    if overlapping
                    else totals.by_aggregate(view.forest, of_clusters)
                )
        for found in sums:
            # Names newer than the forest have no sums yet; what the forest still has may be gone.
            name = _NONE if found.group == totals.NO_AGGREGATE else names.get(found.group)
            class_name = view.names.classes.get(found.class_id)
            if name is not None and class_name is not None:
                yield CapacityGroup(
                    name, class_name, found.total, found.reserved, round(found.ratio, 6), found.used
                )
