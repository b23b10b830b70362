"""The whole fleet for operators: a figure for every host, and the host behind a figure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from placement.engine.domain.errors import BadRequest
from placement.engine.forest import totals
from placement.engine.forest.totals import NOTHING, Shares
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
    """All hosts and the figure of each, in the order of the groups."""

    hosts: totals.Fleet
    shares: Shares
    groups: list[HostGroup]


class HostFigure(NamedTuple):
    """One host, or shared storage, and its figure; `level` is None if it has nothing of that."""

    id: int
    uuid: str
    name: str
    group: HostGroup
    is_storage: bool
    part: int
    whole: int
    level: int | None


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
    """The capacity of a resource class, and what is used of it, in units of the class."""

    capacity: int
    used: int


class HostUse(NamedTuple):
    """A host with the capacity and use of its tree by class; `cluster` is None for a host of no cluster."""

    uuid: str
    name: str
    cluster: str | None
    resources: Mapping[str, UsedCapacity]


class ClusterUse(NamedTuple):
    """The number of hosts of a cluster, with the capacity and use of their trees by class."""

    hosts: int
    resources: Mapping[str, UsedCapacity]


class Hosts:
    """A use case that looks at all hosts at once."""

    def __init__(self, database: Database, forest: ForestKeeper) -> None:
        self._database = database
        self._forest = forest

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
        """Return all hosts, or these of a cluster or an aggregate, as they are now.

        Raises BadRequest, Unavailable.
        """
        view = self._forest.current()
        with self._database.read() as connection:
            aggregates = clusters.aggregates_called(connection)
        only = None
        if cluster is not None:
            only = next((each.id for each in aggregates if each.cluster == cluster), None)
            if only is None:
                raise BadRequest(f"cluster: No cluster {cluster} found")
        if aggregate is not None:
            # An unknown one has no hosts.
            only = next((each.id for each in aggregates if each.uuid == aggregate), totals.NO_AGGREGATE)
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
        # A host may be in several clusters; then it is shown in the one that was asked for.
        preferred = of_clusters if only is None else {only}
        fleet = totals.fleet_of(view.forest, preferred, only, sharing)
        return FleetSnapshot(self._database, view, known, fleet)


class FleetSnapshot:
    """Hosts as of one moment, in groups."""

    def __init__(
        self, database: Database, view: View, known: Mapping[int, HostGroup], all_: totals.Fleet
    ) -> None:
        self._database = database
        self._view = view
        self._known = known
        self._all = all_

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
        return len(self._all.roots) - self._all.storage

    @property
    def storage(self) -> int:
        """How many providers of shared storage there are, which are no hosts."""
        return self._all.storage

    def counted(self) -> dict[str, int]:
        """Return how many hosts each group has, by its name."""
        groups = (self._known.get(group, _NEITHER).name for group in self._all.groups)
        return dict(zip(groups, self._all.counts(), strict=True))

    def members(self) -> dict[str, int]:
        """Return how many hosts each cluster and aggregate has; a host counts in all that it is in."""
        counts = totals.hosts_of_aggregates(self._view.forest, self._all)
        known = {**self._known, totals.NO_AGGREGATE: _NEITHER}
        return {known[id_].name: count for id_, count in counts.items() if id_ in known}

    def called(self) -> dict[str, str]:
        """Return what people know each cluster and aggregate by, by the names of their groups."""
        return {group.name: group.shown for group in self._known.values()}

    def heat_map(self, figure: FleetFigure, resource_class: str) -> HeatMap:
        """Return the figures of all hosts. Raises BadRequest for an unknown class, as `of` does."""
        groups = [self._known.get(group, _NEITHER) for group in self._all.groups]
        return HeatMap(self._all, self._shares(figure, resource_class), groups)

    def of(self, ids: Sequence[int], figure: FleetFigure, resource_class: str) -> list[HostFigure]:
        """Return the hosts with these storage ids that are there. Raises BadRequest."""
        places = [place for place in totals.places_of(self._all, ids) if place is not None]
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
        places = [shares.most_left(~self._all.is_storage)] if self.hosts else []
        return next(iter(self._reported(shares, places)), None)

    def listed(self, after: int, count: int) -> tuple[list[HostUse], int | None]:
        """Return the next hosts by storage id, and the id after which the following page begins.

        Shared storage is no host.
        """
        places = totals.hosts_after(self._all, after, count + 1)
        ids = {place: int(self._all.ids[place]) for place in places[:count]}
        rows = self._named(set(ids.values()))
        found = []
        for place, id_ in ids.items():
            # One that was deleted since has no row any more.
            if id_ in rows:
                group = self._known.get(self._all.groups[int(self._all.group_of[place])], _NEITHER)
                cluster = group.name if group.kind == _CLUSTER else None
                used = {name: share.at(place) for name, share in self._uses.items()}
                found.append(HostUse(rows[id_].uuid, rows[id_].name, cluster, _by_class(used)))
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
        sums = {name: totals.by_group(self._all, share) for name, share in uses.items()}
        found = {}
        for at, (id_, hosts) in enumerate(zip(self._all.groups, self._all.counts(), strict=True)):
            used = {name: amounts[at] for name, amounts in sums.items()}
            found[self._known.get(id_, _NEITHER)] = ClusterUse(hosts, _by_class(used))
        return found

    def level_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the use of each host in percent, by class, as `totals.levels_of` reads it."""
        return totals.level_blocks(self._all, self._uses)

    @cached_property
    def _uses(self) -> dict[str, Shares]:
        return {name: self._shares(FleetFigure.USE, name) for name in self.classes()}

    def overfull(self, most: int) -> tuple[list[Overfull], int]:
        """Return at most `most` inventories with more in use than there is, and how many there are."""
        found = totals.overfull(self._view.forest)
        shown = found[:most]
        names = self._named({row[0] for row in shown})
        classes = self._view.names.classes
        reported = [
            Overfull(names[id_].uuid, names[id_].name, classes[class_id], used, most_)
            for id_, class_id, used, most_ in shown
            if id_ in names and class_id in classes
        ]
        return reported, len(found)

    def _reported(self, shares: Shares, places: Sequence[int]) -> list[HostFigure]:
        ids = {place: int(self._all.ids[place]) for place in places}
        rows = self._named(set(ids.values()))
        levels = shares.levels
        reported = []
        for place, id_ in ids.items():
            # One that was deleted since has no row any more.
            if id_ in rows:
                level = int(levels[place])
                group = self._known.get(self._all.groups[int(self._all.group_of[place])], _NEITHER)
                is_storage = bool(self._all.is_storage[place])
                figures = (*shares.at(place), None if level == NOTHING else level)
                reported.append(HostFigure(id_, rows[id_].uuid, rows[id_].name, group, is_storage, *figures))
        return reported

    def _named(self, ids: Collection[int]) -> dict[int, Named]:
        if not ids:
            return {}
        with self._database.read() as connection:
            return providers.named(connection, ids)

    def _shares(self, figure: FleetFigure, resource_class: str) -> Shares:
        view, all_ = self._view, self._all
        ids = view.names.class_ids
        if figure is FleetFigure.USE:
            if resource_class not in ids:
                raise BadRequest(f"class: No such resource class {resource_class}.")
            return totals.used(view.forest, all_, ids[resource_class])
        if figure is FleetFigure.CORES:
            return totals.free_cores(view.forest, all_, ids[_CPUS], ids[_MEMORY])
        return totals.stranded_cores(view.forest, all_, ids[_CPUS], ids[_MEMORY], COMMON_REQUEST)


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
