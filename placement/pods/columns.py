"""Numbers of nodes as columns, and what is decided once for all nodes of one kind or with one guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.numa.accumulator import thinned
from placement.engine.numa.amounts import NOTHING, bound_cost, host_cpu_requested
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel, NumaPolicy
from placement.engine.numa.host import FACE_VALUE, HostState, clean_cpus, numa_used
from placement.pods.host import Host, HostBinding
from placement.pods.koordinator.pod import PodRequest
from placement.pods.manifests.selection import Taint
from placement.pods.node_info import NodeInfo

# What the columns say of one node, as numbers by column.
#
# A number that is not there is 0. Amounts of resources on the host count in units of their class where pods
# are filtered, and in millicores, bytes and pieces where they are scored.


# Amounts beyond this are not counted, so that a hundred times as much fits into 64 bits.
MOST = 2**55


class ColumnKey(NamedTuple):
    """Names a column: what it counts, of which resource or class, on which NUMA node by ascending id."""

    what: str
    of: str = ""
    place: int = 0


VAST = ColumnKey("an amount is beyond what is counted")
BOUND_COST = ColumnKey("millicores that all bound CPUs cost")
CPU_REQUESTED = ColumnKey("millicores requested of the host, bound CPUs at their cost")
NUMA_NODES = ColumnKey("NUMA nodes")


def room(resource_class: str) -> ColumnKey:
    """The units of a class that a pod may have on a host."""
    return ColumnKey("room", resource_class)


def allocatable(resource: str) -> ColumnKey:
    """What the host as a whole can give."""
    return ColumnKey("allocatable", resource)


def requested(resource: str) -> ColumnKey:
    """What all pods on the host request."""
    return ColumnKey("requested", resource)


def reported(resource: str) -> ColumnKey:
    """1 if any NUMA node reports the resource."""
    return ColumnKey("reported by NUMA nodes", resource)


def numa_capacity(resource: str, place: int) -> ColumnKey:
    """What a NUMA node has."""
    return ColumnKey("NUMA capacity", resource, place)


def numa_requested(resource: str, place: int) -> ColumnKey:
    """What of that is used."""
    return ColumnKey("NUMA used", resource, place)


def free_cpus(policy: str) -> ColumnKey:
    """The CPUs of the host that a pod may be given; only those that a strict bind policy leaves."""
    return ColumnKey("free CPUs", policy)


def numa_free_cpus(policy: str, place: int) -> ColumnKey:
    """The same on one NUMA node."""
    return ColumnKey("free CPUs on a NUMA node", policy, place)


def clean(level: str, step: int) -> ColumnKey:
    """The free CPUs of the host without neighbours that a level avoids, by what these miss."""
    return ColumnKey("clean CPUs", level, step)


Numbers = dict[ColumnKey, int]


class NodeNumbers:
    """The numbers of nodes, counted once for each host, and once for like nodes on which nobody is."""

    def __init__(self) -> None:
        self._of_hosts: dict[Host, Numbers] = {}
        self._of_empty: dict[tuple[object, ...], Numbers] = {}

    def of(self, node: NodeInfo) -> Numbers:
        """All numbers of a node; only to be read, as other nodes may have the same."""
        if node.holders or node.others:
            return self._all(node)
        # Everything else that they are made of follows from the template and from the host.
        key = (node.template, node.host, node.totals, frozenset(node.unused.items()))
        found = self._of_empty.get(key)
        if found is None:
            found = self._of_empty[key] = self._all(node)
        return found

    def _all(self, node: NodeInfo) -> Numbers:
        host = node.host
        of_host = self._of_hosts.get(host)
        if of_host is None:
            of_host = self._of_hosts[host] = dict(_of_host(host))
        return _counted({**of_host, **dict(_of_totals(node))})


def _counted(numbers: Numbers) -> Numbers:
    if all(-MOST < number < MOST for number in numbers.values()):
        return numbers
    return {**{column: max(-MOST, min(MOST, number)) for column, number in numbers.items()}, VAST: 1}


def _of_totals(node: NodeInfo) -> Iterator[tuple[ColumnKey, int]]:
    totals, state = node.totals, node.host.state
    for resource, amount in totals.allocatable.items():
        yield allocatable(resource), amount
    for resource, amount in totals.requested.items():
        yield requested(resource), amount
    cpu = totals.requested.get("cpu", 0)
    if state.cpu_ratio > FACE_VALUE:
        cpu = host_cpu_requested(cpu, state.use.held.bit_count(), state.cpu_ratio)
    yield CPU_REQUESTED, cpu
    for resource_class, units in _rooms(node).items():
        yield room(resource_class), units


def _rooms(node: NodeInfo) -> Mapping[str, int]:
    """What NUMA nodes have left counts for what the host as a whole does not offer (`filter.lacking`)."""
    rooms = dict(node.free)
    below: dict[str, int] = {}
    for place in node.offers.below:
        kind = place.resource_class
        if kind not in rooms:
            below[kind] = below.get(kind, 0) + node.left(place)
    return rooms | below


def _of_host(host: Host) -> Iterator[tuple[ColumnKey, int]]:
    state = host.state
    yield BOUND_COST, bound_cost(1000 * state.use.held.bit_count(), state.cpu_ratio)
    yield NUMA_NODES, len(state.capacity)
    used = numa_used(state, state.use, NOTHING)
    for place, (numa, row) in enumerate(state.capacity.items()):
        for resource, amount in row.items():
            yield reported(resource), 1
            yield numa_capacity(resource, place), amount
            yield numa_requested(resource, place), used.get(numa, {}).get(resource, 0)
    yield from _of_cpus(state)


def _of_cpus(state: HostState) -> Iterator[tuple[ColumnKey, int]]:
    layout, free = state.layout, state.free_cpus(state.use)
    thinnings = {policy: thinned(layout, free, policy) for policy in BindPolicy}
    for policy, cpus in thinnings.items():
        yield free_cpus(policy), cpus.bit_count()
        for place, numa in enumerate(state.capacity):
            yield numa_free_cpus(policy, place), (cpus & layout.numa_nodes.get(numa, 0)).bit_count()
    for level in ExclusiveLevel:
        for step, cpus in clean_cpus(state, level):
            yield clean(level, step), cpus.bit_count()


class HostKind(NamedTuple):
    """The policies of hosts, and what a bound CPU costs there."""

    bind: HostBinding
    numa_policy: NumaPolicy
    ratio: Fraction


def kind_of(host: Host) -> HostKind:
    """The kind of a host."""
    return HostKind(host.bind, host.numa_policy, host.state.cpu_ratio)


def binds(request: PodRequest, kind: HostKind) -> bool:
    """Whether a pod gets CPUs of its own on hosts of a kind."""
    return kind.bind.binds(request)


def cpu_cost(request: PodRequest, kind: HostKind) -> int:
    """The millicores that a pod costs on hosts of a kind."""
    milli = request.milli_cpus
    return bound_cost(milli, kind.ratio) if binds(request, kind) else milli


def thinning(request: PodRequest, kind: HostKind) -> BindPolicy | None:
    """The strict bind policy that leaves a pod some free CPUs of a host only; NONE if it has all of them.

    None if the pod is not bound there.
    """
    cpus = kind.bind.demand(request)
    if cpus is None:
        return None
    return cpus.bind if cpus.strict else BindPolicy.NONE


def effective_policy(request: PodRequest, kind: HostKind) -> NumaPolicy | None:
    """The NUMA policy of a pod on hosts of a kind, None if theirs and its own differ."""
    policies = {kind.numa_policy, request.numa.policy} - {NumaPolicy.NONE}
    return next(iter(policies), NumaPolicy.NONE) if len(policies) < 2 else None


GUARD, KIND = ColumnKey("guard"), ColumnKey("kind of host")


class Guard(NamedTuple):
    """What keeps pods off a node unless they tolerate it."""

    taints: tuple[Taint, ...]
    unschedulable: bool


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of nodes, row by row; never changed.

    `GUARD` and `KIND` are the places of a node's guard and kind among `guards` and `kinds`.
    """

    count: int = 0
    columns: Mapping[ColumnKey, Amounts] = field(default_factory=dict)
    guards: Mapping[Guard, int] = field(default_factory=dict)
    kinds: Mapping[HostKind, int] = field(default_factory=dict)
    places: Rows | None = None
    """The rows of the columns that are looked at; None if all are."""

    def __len__(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return sum(numbers.nbytes for numbers in self.columns.values())

    def __getitem__(self, column: ColumnKey) -> Amounts:
        """The numbers of a column, only to be read."""
        found = self.columns.get(column)
        if found is None:
            return np.zeros(self.count, np.int64)
        return found if self.places is None else found[self.places]

    def rows(self, rows: Rows) -> Table:
        """Some of the rows, in that order."""
        return replace(self, count=len(rows), places=rows if self.places is None else self.places[rows])

    @property
    def numa_nodes(self) -> int:
        """The most NUMA nodes that any node has."""
        return int(self[NUMA_NODES].max(initial=0))

    def where_guard(self, admits: Callable[[Guard], bool]) -> Mask:
        """The nodes whose guard admits somebody, who is asked once per distinct guard."""
        return np.array([admits(guard) for guard in self.guards], np.bool_)[self[GUARD]]

    def where_kind(self, holds: Callable[[HostKind], bool]) -> Mask:
        """The nodes of whose kind something holds, which is asked once per distinct kind."""
        return np.array([holds(kind) for kind in self.kinds], np.bool_)[self[KIND]]

    def by_kind(self, number: Callable[[HostKind], int]) -> Amounts:
        """A number that depends on the kind of a node alone, up to what is counted."""
        return np.array([min(MOST, number(kind)) for kind in self.kinds], np.int64)[self[KIND]]

    def rearranged(self, source: Rows) -> Table:
        """The rows in another order; -1 stands for a node of which nothing is known yet."""
        moved = {
            column: np.where(source < 0, 0, self[column][source])
            for column, numbers in self.columns.items()
            if self.count and numbers.any()
        }
        return replace(self, count=len(source), columns=moved, places=None)


Written = tuple[int, Guard, HostKind, Numbers]
"""A row and what it is to say: the guard and the kind of the node, and its numbers."""


def written(table: Table, rows: Iterable[Written]) -> Table:
    """The table after some rows changed; columns in which nothing changes are shared."""
    if table.places is not None:
        table = table.rearranged(np.arange(table.count))
    guards, kinds, columns = dict(table.guards), dict(table.kinds), dict(table.columns)
    own: set[ColumnKey] = set()
    # Like nodes have the same object for numbers.
    alike: dict[tuple[Guard, HostKind, int], tuple[list[int], Numbers]] = {}
    for row, guard, kind, numbers in rows:
        alike.setdefault((guard, kind, id(numbers)), ([], numbers))[0].append(row)
    for (guard, kind, _), (group, numbers) in alike.items():
        codes = {GUARD: _code(guard, guards), KIND: _code(kind, kinds)}
        _write(columns, own, table.count, group, {**numbers, **codes})
    return Table(table.count, columns, guards, kinds)


def _write(
    columns: dict[ColumnKey, Amounts],
    own: set[ColumnKey],
    count: int,
    rows: Sequence[int],
    numbers: Numbers,
) -> None:
    """Let rows say these numbers, and 0 in all other columns; only columns of our `own` are written to."""
    # For one row, as with each pod that is placed, plain numbers are much faster.
    at: int | Rows = rows[0] if len(rows) == 1 else np.array(rows, np.intp)
    is_any: Callable[[Any], bool] = bool if len(rows) == 1 else np.any
    for column in numbers.keys() - columns.keys():
        columns[column] = np.zeros(count, np.int64)
        own.add(column)
    for column, present in list(columns.items()):
        number = numbers.get(column, 0)
        if is_any(present[at] != number):
            if column not in own:
                present = columns[column] = present.copy()
                own.add(column)
            present[at] = number


_Distinct = TypeVar("_Distinct", Guard, HostKind)


def _code(value: _Distinct, codes: dict[_Distinct, int]) -> int:
    return codes.setdefault(value, len(codes))
