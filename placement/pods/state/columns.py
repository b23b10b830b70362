"""Numbers of nodes as columns, and decisions made once for all nodes of one kind or with one guard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, numa_class
from placement.engine.forest.arrays import Amounts, Floats, Mask, Rows
from placement.engine.numa import host as numa_host
from placement.engine.numa.accumulator import thinned
from placement.pods.manifests.selection import NodeAttributes, Taint
from placement.pods.state.host import Host, HostBinding, demand_on
from placement.pods.state.model import PodRequest
from placement.pods.state.node_info import NodeInfo

# Amounts beyond this are not counted, so that a hundred times as much fits into 64 bits.
MOST = 2**55


class ColumnKey(NamedTuple):
    """A name of a column: what it counts, of which resource or class, on which NUMA node by ascending id.

    A number that is not there is 0. Amounts of resources on the host count in units of their class where pods
    are filtered, and in millicores, bytes and pieces where they are scored.
    """

    what: str
    of: str = ""
    place: int = 0


VAST = ColumnKey("an amount is beyond what is counted")
BOUND_COST = ColumnKey("millicores that all bound CPUs cost")
CPU_REQUESTED = ColumnKey("millicores requested of the host, bound CPUs at their cost")
NUMA_NODES = ColumnKey("NUMA nodes")


# Units of a class that a pod may have on a host.
room = partial(ColumnKey, "room")
# What the host as a whole can give of a resource, and what all pods there request.
allocatable = partial(ColumnKey, "allocatable")
requested = partial(ColumnKey, "requested")
# 1 if any NUMA node reports the resource.
reported = partial(ColumnKey, "reported by NUMA nodes")
# What a NUMA node has of a resource, and what is used there.
numa_capacity = partial(ColumnKey, "NUMA capacity")
numa_requested = partial(ColumnKey, "NUMA used")
# CPUs that a pod may be given, of the host or of one NUMA node, less what a strict bind policy rules out.
free_cpus = partial(ColumnKey, "free CPUs")
numa_free_cpus = partial(ColumnKey, "free CPUs on a NUMA node")
# The host's free CPUs without neighbours that a level avoids, by what these miss.
clean = partial(ColumnKey, "clean CPUs")


ColumnNumbers = dict[ColumnKey, int]


class NodeNumbers:
    """A cache of the numbers of nodes, counted once for each host, and once for like empty nodes."""

    def __init__(self) -> None:
        self._of_hosts: dict[Host, ColumnNumbers] = {}
        self._of_empty: dict[tuple[object, ...], ColumnNumbers] = {}

    def of(self, node: NodeInfo) -> ColumnNumbers:
        """Return all numbers of a node; callers must not change them, as like nodes share them."""
        if node.holders or node.others:
            return self._counted(node)
        # Everything else that the numbers depend on follows from the template and from the host.
        key = (node.template, node.host, node.totals, frozenset(node.unused.items()))
        found = self._of_empty.get(key)
        if found is None:
            found = self._of_empty[key] = self._counted(node)
        return found

    def _counted(self, node: NodeInfo) -> ColumnNumbers:
        host, totals = node.host, node.totals
        of_host = self._of_hosts.get(host)
        if of_host is None:
            of_host = self._of_hosts[host] = _of_host(host)
        numbers = dict(of_host)
        numbers.update((allocatable(resource), amount) for resource, amount in totals.allocatable.items())
        numbers.update((requested(resource), amount) for resource, amount in totals.requested.items())
        cpu, state = totals.requested.get("cpu", 0), host.state
        if state.cpu_ratio > numa_host.FACE_VALUE:
            cpu = numa_host.host_cpu_requested(cpu, state.use.held.bit_count(), state.cpu_ratio)
        numbers[CPU_REQUESTED] = cpu
        # Classes that the host does not offer are counted on its NUMA nodes (`rules.amounts.lacking`).
        below: Counter[str] = Counter()
        for place in node.offers.below:
            if place.resource_class not in node.free:
                below[place.resource_class] += node.left(place)
        for resource_class, units in (*node.free.items(), *below.items()):
            numbers[room(resource_class)] = units
        if all(-MOST < number < MOST for number in numbers.values()):
            return numbers
        return {**{column: max(-MOST, min(MOST, number)) for column, number in numbers.items()}, VAST: 1}


def _of_host(host: Host) -> ColumnNumbers:
    state = host.state
    layout, free = state.layout, state.free_cpus(state.use)
    numbers = {
        BOUND_COST: numa_host.bound_cost(1000 * state.use.held.bit_count(), state.cpu_ratio),
        NUMA_NODES: len(state.capacity),
    }
    used = numa_host.numa_used(state, state.use, numa_host.NOTHING)
    for place, (numa, row) in enumerate(state.capacity.items()):
        for resource, amount in row.items():
            numbers[reported(resource)] = 1
            numbers[numa_capacity(resource, place)] = amount
            numbers[numa_requested(resource, place)] = used.get(numa, {}).get(resource, 0)
    for policy in numa_host.BindPolicy:
        cpus = thinned(layout, free, policy)
        numbers[free_cpus(policy)] = cpus.bit_count()
        for place, numa in enumerate(state.capacity):
            there = cpus & layout.numa_nodes.get(numa, 0)
            numbers[numa_free_cpus(policy, place)] = there.bit_count()
    for level in numa_host.ExclusiveLevel:
        for step, cpus in numa_host.clean_cpus(state, level):
            numbers[clean(level, step)] = cpus.bit_count()
    return numbers


class HostKind(NamedTuple):
    """A kind of hosts: their policies, and what a bound CPU costs there."""

    binding: HostBinding
    numa_policy: numa_host.NumaPolicy
    ratio: Fraction


def kind_of(host: Host) -> HostKind:
    """Return the kind of a host."""
    return HostKind(host.binding, host.numa_policy, host.state.cpu_ratio)


def binds(request: PodRequest, kind: HostKind) -> bool:
    """Return whether a pod gets CPUs of its own on hosts of a kind."""
    return kind.binding.binds(request)


def cpu_cost(request: PodRequest, kind: HostKind) -> int:
    """Return the millicores that a pod costs on hosts of a kind."""
    milli = request.milli_cpus
    return numa_host.bound_cost(milli, kind.ratio) if binds(request, kind) else milli


def thinning(request: PodRequest, kind: HostKind) -> numa_host.BindPolicy | None:
    """Return the strict bind policy that leaves a pod only some free CPUs of a host; NONE if it has them all.

    Return None if the pod is not bound there.
    """
    cpus = demand_on(kind.binding, request).cpus
    if cpus is None:
        return None
    return cpus.bind if cpus.strict else numa_host.BindPolicy.NONE


def effective_policy(request: PodRequest, kind: HostKind) -> numa_host.NumaPolicy | None:
    """Return the NUMA policy of a pod on hosts of a kind; None if their policy and its own differ."""
    policies = {kind.numa_policy, request.numa.policy} - {numa_host.NumaPolicy.NONE}
    return next(iter(policies), numa_host.NumaPolicy.NONE) if len(policies) < 2 else None


GUARD, KIND = ColumnKey("guard"), ColumnKey("kind of host")


class NodeGuard(NamedTuple):
    """A guard that keeps pods off a node unless they tolerate it; what `is_closed` no pod tolerates."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    is_closed: bool = False

    @classmethod
    def of(cls, attributes: NodeAttributes) -> NodeGuard:
        """Return the guard of a node with these attributes."""
        return cls(attributes.taints, attributes.unschedulable, attributes.closed is not None)


@dataclass(frozen=True, eq=False)
class NodeTable:
    """A table with the numbers of nodes, row by row, that never changes.

    `GUARD` and `KIND` are the places of a node's guard and kind among `guards` and `kinds`.
    """

    count: int = 0
    columns: Mapping[ColumnKey, Amounts] = field(default_factory=dict)
    guards: Mapping[NodeGuard, int] = field(default_factory=dict)
    kinds: Mapping[HostKind, int] = field(default_factory=dict)
    places: Rows | None = None
    """The rows of the columns that are looked at; None if all are."""

    def __len__(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        """Return the memory of the columns, in bytes."""
        return sum(numbers.nbytes for numbers in self.columns.values())

    def __getitem__(self, column: ColumnKey) -> Amounts:
        """Return the numbers of a column; callers must not change them."""
        found = self.columns.get(column)
        if found is None:
            return np.zeros(self.count, np.int64)
        return found if self.places is None else found[self.places]

    def rows(self, rows: Rows) -> NodeTable:
        """Return a table of some of the rows, in that order."""
        return replace(self, count=len(rows), places=rows if self.places is None else self.places[rows])

    @property
    def numa_nodes(self) -> int:
        """Return the most NUMA nodes that any node has."""
        return int(self[NUMA_NODES].max(initial=0))

    def where_guard(self, admits: Callable[[NodeGuard], bool]) -> Mask:
        """Return the nodes with a guard that `admits` accepts; it is called once per distinct guard."""
        return np.array([admits(guard) for guard in self.guards], np.bool_)[self[GUARD]]

    def where_kind(self, holds: Callable[[HostKind], bool]) -> Mask:
        """Return the nodes of a kind for which `holds` is true; it is called once per distinct kind."""
        return np.array([holds(kind) for kind in self.kinds], np.bool_)[self[KIND]]

    def by_kind(self, number: Callable[[HostKind], int]) -> Amounts:
        """Return a number that depends on the kind of a node alone, at most MOST."""
        return np.array([min(MOST, number(kind)) for kind in self.kinds], np.int64)[self[KIND]]

    def rearranged(self, source: Rows) -> NodeTable:
        """Return the rows in another order; -1 stands for a node that is not known yet."""
        moved = {
            column: np.where(source < 0, 0, self[column][source])
            for column, numbers in self.columns.items()
            if self.count and numbers.any()
        }
        return replace(self, count=len(source), columns=moved, places=None)


Written = tuple[int, NodeGuard, HostKind, ColumnNumbers]
"""A row and its new content: the guard and the kind of the node, and its numbers."""


def written(table: NodeTable, rows: Iterable[Written]) -> NodeTable:
    """Return the table after some rows changed; columns without changes are shared."""
    if table.places is not None:
        table = table.rearranged(np.arange(table.count))
    guards, kinds, columns = dict(table.guards), dict(table.kinds), dict(table.columns)
    # Columns that are no longer shared with the table.
    own: set[ColumnKey] = set()
    # Like nodes have the same object for numbers.
    alike: dict[tuple[NodeGuard, HostKind, int], tuple[list[int], ColumnNumbers]] = {}
    for row, guard, kind, numbers in rows:
        alike.setdefault((guard, kind, id(numbers)), ([], numbers))[0].append(row)
    for (guard, kind, _), (group, numbers) in alike.items():
        codes = {
            GUARD: guards.setdefault(guard, len(guards)),
            KIND: kinds.setdefault(kind, len(kinds)),
        }
        fresh = {**numbers, **codes}
        # For one row, as with each pod that is placed, plain numbers are much faster.
        at: int | Rows = group[0] if len(group) == 1 else np.array(group, np.intp)
        is_any: Callable[[Any], bool] = bool if len(group) == 1 else np.any
        for column in fresh.keys() - columns.keys():
            columns[column] = np.zeros(table.count, np.int64)
            own.add(column)
        for column, present in list(columns.items()):
            number = fresh.get(column, 0)
            if is_any(present[at] != number):
                if column not in own:
                    present = columns[column] = present.copy()
                    own.add(column)
                present[at] = number
    return NodeTable(table.count, columns, guards, kinds)


class AskedAmount(NamedTuple):
    """A demand that a pod has on each node, and what is free there; `unit` of it is one of the class."""

    resource_class: str
    wanted: Amounts
    free: Amounts
    unit: int = 1

    @property
    def fits(self) -> Mask:
        """Return the nodes that have enough."""
        enough: Mask = self.free >= self.wanted
        return enough

    @property
    def missing_shares(self) -> Floats:
        """Return the share of the wanted amount that each node lacks; only for comparing nodes."""
        missing_shares: Floats = np.maximum(self.wanted - self.free, 0) / np.maximum(self.wanted, 1)
        return missing_shares

    def wanted_units(self, row: int) -> int:
        """Return how many units of the class are wanted on a node."""
        return -(-int(self.wanted[row]) // self.unit)

    def free_units(self, row: int) -> int:
        """Return how many units of the class are free on a node."""
        return max(0, int(self.free[row]) // self.unit)


def fits_all(table: NodeTable, asked_amounts: Iterable[AskedAmount]) -> Mask:
    """Return the nodes that have enough of all amounts."""
    mask = np.ones(len(table), np.bool_)
    for asked in asked_amounts:
        mask &= asked.fits
    return mask


def offering(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes that have all that a pod requests at all, used or free."""
    mask = np.ones(len(table), np.bool_)
    for resource, amount in request.amounts.items():
        if amount:
            mask &= (table[allocatable(resource)] > 0) | (table[reported(resource)] > 0)
    return mask


def everywhere(table: NodeTable, amount: int) -> Amounts:
    """Return an amount for each node, at most MOST."""
    return np.full(len(table), min(MOST, amount), np.int64)


def own_cpus(table: NodeTable, request: PodRequest, place: int | None = None) -> AskedAmount:
    """Return the CPUs that a bound pod may be given on a host, or on one NUMA node; none for other pods."""
    wanted, free = everywhere(table, 0), everywhere(table, 0)
    for policy in numa_host.BindPolicy:
        concerned = table.where_kind(partial(_is_thinned_to, policy, request))
        if concerned.any():
            column = free_cpus(policy) if place is None else numa_free_cpus(policy, place)
            if concerned.all():
                return AskedAmount(CORE_CLASS, everywhere(table, request.need), table[column])
            wanted[concerned] = min(MOST, request.need)
            free[concerned] = table[column][concerned]
    return AskedAmount(CORE_CLASS, wanted, free)


def _is_thinned_to(policy: numa_host.BindPolicy, request: PodRequest, kind: HostKind) -> bool:
    return thinning(request, kind) is policy


def is_aligned(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes on which a pod has a NUMA policy, because of itself or because of the host."""
    policy = request.numa.policy
    return table.where_kind(lambda kind: {kind.numa_policy, policy} != {numa_host.NumaPolicy.NONE})


def on_all_numa_nodes(table: NodeTable, request: PodRequest) -> Iterator[AskedAmount]:
    """Yield the amounts that all NUMA nodes of a host together must have of reported resources."""
    for resource, amount in request.amounts.items():
        free = everywhere(table, 0)
        for place in range(table.numa_nodes):
            free += numa_left(table, resource, place)
        yield _on_numa_nodes(table, resource, amount, free)


def on_numa_node(table: NodeTable, request: PodRequest, place: int) -> Iterator[AskedAmount]:
    """Yield the amounts of reported resources that one NUMA node must have to serve the whole pod."""
    for resource, amount in request.amounts.items():
        yield _on_numa_nodes(table, resource, amount, numa_left(table, resource, place))
        if resource == "cpu":
            cpus = own_cpus(table, request, place)
            yield cpus._replace(wanted=cpus.wanted * table[reported("cpu")])


def _on_numa_nodes(table: NodeTable, resource: str, amount: int, free: Amounts) -> AskedAmount:
    kind = numa_class(resource)
    return AskedAmount(kind.name, table[reported(resource)] * min(MOST, amount), free, kind.unit)


def stays_on_one(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes on which a pod must stay on one NUMA node out of several."""
    single = numa_host.NumaPolicy.SINGLE_NUMA_NODE
    return table.where_kind(lambda kind: effective_policy(request, kind) is single) & (table[NUMA_NODES] > 1)


def numa_fits(table: NodeTable, request: PodRequest, place: int) -> Mask:
    """Return the nodes where this NUMA node has enough of all reported resources for the whole pod."""
    return (table[NUMA_NODES] > place) & fits_all(table, on_numa_node(table, request, place))


def numa_left(table: NodeTable, resource: str, place: int) -> Amounts:
    """Return the free amount of a resource on one NUMA node."""
    left: Amounts = table[numa_capacity(resource, place)] - table[numa_requested(resource, place)]
    return np.maximum(left, np.int64(0))
