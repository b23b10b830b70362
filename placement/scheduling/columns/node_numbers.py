"""What the columns say of one node, as numbers by column.

A number that is not there is 0. Amounts of resources on the host count in units of their class where pods
are filtered, and in millicores, bytes and pieces where they are scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from placement.numa.accumulator.accumulator import thinned
from placement.numa.amounts import NOTHING, bound_cost, host_cpu_requested
from placement.numa.demand import BindPolicy, ExclusiveLevel
from placement.numa.host import FACE_VALUE, HostState, numa_used
from placement.numa.isolation import clean_cpus
from placement.scheduling.host import Host
from placement.scheduling.node_info import NodeInfo

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
