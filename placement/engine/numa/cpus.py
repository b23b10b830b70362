"""Sets of CPUs, and the CPUs of one host with their cores, NUMA nodes and sockets.

A set is a frozen set, a Linux list, or a mask: bit i of an integer stands for CPU (or NUMA node) i.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

from placement.engine.domain.errors import BadRequest


def mask_of(members: Iterable[int]) -> int:
    """Return the mask that has the bits of these non-negative numbers."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> Iterator[int]:
    """Yield the numbers of the set bits, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest_bits(mask: int, count: int) -> int:
    """Return the `count` lowest set bits of a mask; all of them if it has no more."""
    if mask.bit_count() <= count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


CpuSet = frozenset[int]

MAX_RANGE_END = 4096
# Lists may repeat ids, which takes time and says nothing: the list of any host stays far below this.
_MOST_NAMED = 4 * (MAX_RANGE_END + 1)

# Eighteen digits always fit 64 bits; a longer number cannot be a CPU and would only cost memory.
_PART = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class CpuListError(BadRequest, ValueError):
    """A CPU list that is not in Linux syntax, or ids that no CPU list can hold."""


def parse_cpu_list(text: str) -> CpuSet:
    """Return the logical CPU ids that a list such as `0-3,8` names; the empty text names none.

    Parts may come in any order and repeat; a descending range is empty. Raises CpuListError for blanks,
    empty or non-decimal parts, ranges that end above 4096, and lists that repeat ids over and over.
    Source: koordinator.md, "CPU list syntax".
    """
    return _united(map(_part, text.split(",") if text else ()))


def parse_typed_cpu_list(text: str) -> CpuSet:
    """Return the CPUs of a list that a person wrote, such as `0, 8`: blanks around parts are read.

    As in kubelet, each part names CPUs: `3-1` and `0,,8` are typing errors. Raises CpuListError.
    """
    return _united(map(_typed_part, text.split(",") if text.strip() else ()))


def _united(parts: Iterable[range]) -> CpuSet:
    """Return the ids of all parts. A list of 140 KB can name 80 million, as in `0-4096,0-4096,...`."""
    cpus: set[int] = set()
    named = 0
    for part in parts:
        named += len(part)
        if named > _MOST_NAMED:
            raise CpuListError(f"the list names more than {_MOST_NAMED} CPU ids, some of them repeatedly")
        cpus.update(part)
    return frozenset(cpus)


def _typed_part(text: str) -> range:
    part = text.strip()
    named = _part(part) if part else range(0)
    if not named:
        raise CpuListError(f"{_shown(text)} names no CPU")
    return named


def _part(text: str) -> range:
    match = _PART.fullmatch(text)
    if match is None:
        raise CpuListError(f"{_shown(text)} is not a CPU id or a range of CPU ids")
    first, last = int(match[1]), int(match[2] or match[1])
    if match[2] is not None and last > MAX_RANGE_END:
        raise CpuListError(f"the range {text} ends above {MAX_RANGE_END}")
    return range(first, last + 1)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the canonical list of logical CPU ids: ascending, joined (`0-3,8,10-11`), none = empty text.

    Raises CpuListError for a negative id. Source: koordinator.md, "CPU list syntax".
    """
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if cpu < 0:
            raise CpuListError(f"{cpu} is not a CPU id")
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    parts = []
    for first, last in ranges:
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


# The logical CPUs of a host.


CoreId = tuple[int, int]
"""A physical core: (socket, core), because core numbers may repeat from socket to socket."""

_Place = TypeVar("_Place", int, CoreId)


class LogicalCpu(NamedTuple):
    """A hardware thread and its place, as four non-negative ids."""

    cpu: int
    core: int
    numa: int
    socket: int

    @property
    def core_id(self) -> CoreId:
        """The physical core of this thread."""
        return (self.socket, self.core)


@dataclass(frozen=True)
class CpuTopology:
    """The logical CPUs of a host in ascending order of id; no rows means that nothing is known.

    Expects rows without inconsistencies (`find_inconsistencies`).
    """

    rows: tuple[LogicalCpu, ...] = ()

    def __post_init__(self) -> None:
        # Two reports of the same host must be equal however their rows were ordered.
        object.__setattr__(self, "rows", tuple(sorted(self.rows)))

    @cached_property
    def by_cpu(self) -> Mapping[int, LogicalCpu]:
        """The row of each logical CPU id, ascending."""
        return {row.cpu: row for row in self.rows}

    @cached_property
    def cpus(self) -> CpuSet:
        """All logical CPU ids."""
        return frozenset(self.by_cpu)

    @cached_property
    def cores(self) -> Mapping[CoreId, tuple[int, ...]]:
        """The ascending logical CPU ids of each physical core, cores ascending by (socket, core)."""
        return _grouped(self.rows, lambda row: row.core_id)

    @cached_property
    def numa_nodes(self) -> Mapping[int, tuple[int, ...]]:
        """The ascending logical CPU ids of each NUMA node that has CPUs, NUMA ids ascending."""
        return _grouped(self.rows, lambda row: row.numa)

    @cached_property
    def sockets(self) -> Mapping[int, tuple[int, ...]]:
        """The ascending logical CPU ids of each socket, socket ids ascending."""
        return _grouped(self.rows, lambda row: row.socket)

    @cached_property
    def places(self) -> tuple[tuple[int, int, CpuSet], ...]:
        """The socket, the id and the logical CPU ids of each NUMA node that has CPUs, ascending."""
        socket_of = {row.numa: row.socket for row in self.rows}
        found = ((socket_of[numa], numa, frozenset(cpus)) for numa, cpus in self.numa_nodes.items())
        return tuple(sorted(found, key=lambda place: place[:2]))

    @property
    def threads_per_core(self) -> int:
        """CPUs // cores over the whole host, 0 when there are none; an offline sibling lowers it.

        Source: koordinator.md, "Derived numbers".
        """
        return len(self.rows) // len(self.cores) if self.cores else 0


def _grouped(
    rows: Iterable[LogicalCpu], place: Callable[[LogicalCpu], _Place]
) -> Mapping[_Place, tuple[int, ...]]:
    groups: dict[_Place, list[int]] = defaultdict(list)
    for row in rows:
        groups[place(row)].append(row.cpu)
    return {key: tuple(groups[key]) for key in sorted(groups)}


class CpuLayout:
    """The cores, NUMA nodes and sockets of a host as masks of CPU ids; equal topologies share one.

    `cores` are ascending by (socket, core), `numa_nodes` and `sockets` by id. `threads`, `numa_size` and
    `socket_size` are averages over the whole host, rounded down. Source: koordinator.md, "Derived numbers".
    """

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        self.cpus = mask_of(topology.cpus)
        self.threads = topology.threads_per_core
        self.cores = tuple(mask_of(cpus) for cpus in topology.cores.values())
        self.numa_nodes = {numa: mask_of(cpus) for numa, cpus in topology.numa_nodes.items()}
        self.sockets = {socket: mask_of(cpus) for socket, cpus in topology.sockets.items()}
        self.numa_size = len(topology.rows) // max(1, len(self.numa_nodes))
        self.socket_size = len(topology.rows) // max(1, len(self.sockets))

    @cached_property
    def socket_of_numa(self) -> Mapping[int, int]:
        """The socket of each NUMA node."""
        return {row.numa: row.socket for row in self.topology.rows}

    @cached_property
    def core_places(self) -> tuple[tuple[int, int, int], ...]:
        """The mask, NUMA node and socket of each core, in the order of `cores`."""
        rows = (self.topology.by_cpu[cpus[0]] for cpus in self.topology.cores.values())
        return tuple((mask, row.numa, row.socket) for mask, row in zip(self.cores, rows, strict=True))

    @cached_property
    def cores_of_numa(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each NUMA node, in core order."""
        return {
            numa: tuple(mask for mask, place, _ in self.core_places if place == numa)
            for numa in self.numa_nodes
        }

    @cached_property
    def cores_of_socket(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each socket, in core order."""
        return {
            socket: tuple(mask for mask, _, place in self.core_places if place == socket)
            for socket in self.sockets
        }

    def whole_cores(self, free: int) -> int:
        """Return the CPUs of `free` on cores that have exactly `threads` of them."""
        threads, whole = self.threads, 0
        for core in self.cores:
            rest = free & core
            if rest.bit_count() == threads:
                whole |= rest
        return whole

    def lowest_threads(self, free: int) -> int:
        """Return the lowest CPU of `free` on each core."""
        lowest = 0
        for core in self.cores:
            rest = free & core
            lowest |= rest & -rest
        return lowest

    def cores_touching(self, cpus: int) -> int:
        """Return all CPUs of the cores that have any of these."""
        return _union_touching(self.cores, cpus)

    def numa_nodes_touching(self, cpus: int) -> int:
        """Return all CPUs of the NUMA nodes that have any of these."""
        return _union_touching(self.numa_nodes.values(), cpus)

    def numa_ids(self, cpus: int) -> int:
        """Return the NUMA nodes that have any of these CPUs, as a mask of NUMA ids."""
        numa_ids = 0
        for numa, place in self.numa_nodes.items():
            if place & cpus:
                numa_ids |= 1 << numa
        return numa_ids


def _union_touching(places: Iterable[int], cpus: int) -> int:
    touched = 0
    if cpus:
        for place in places:
            if place & cpus:
                touched |= place
    return touched


@lru_cache(maxsize=4096)
def layout_of(topology: CpuTopology) -> CpuLayout:
    """Return the layout of a topology; hosts with equal topologies share one."""
    return CpuLayout(topology)


# Checks of reported CPU topologies.


MAX_ID = 4096
MAX_NUMA_NODES = 64


class Inconsistency(NamedTuple):
    """A fault of a row: its position, the offending field of LogicalCpu, and a sentence."""

    row: int
    field: str
    text: str


def find_inconsistencies(rows: Sequence[LogicalCpu]) -> list[Inconsistency]:
    """Return all inconsistencies in rows of any four integers, in the order of the rows.

    These are: negative ids, ids above 4096, a CPU named twice, a core in two NUMA nodes, a NUMA node in two
    sockets, more than 64 NUMA nodes. Source: koordinator.md, "CPU topology".
    """
    return sorted(_inconsistencies(rows))


def _inconsistencies(rows: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    cpus: set[int] = set()
    numa_of_core: dict[tuple[int, int], int] = {}
    socket_of_numa: dict[int, int] = {}
    for position, row in enumerate(rows):
        for field, value in row._asdict().items():
            if value < 0:
                yield Inconsistency(position, field, f"{value} is negative")
            elif value > MAX_ID:
                yield Inconsistency(position, field, f"{value} is above {MAX_ID}")
        if row.cpu in cpus:
            yield Inconsistency(position, "cpu", f"CPU {row.cpu} is listed twice")
        cpus.add(row.cpu)
        numa = numa_of_core.setdefault(row.core_id, row.numa)
        if numa != row.numa:
            core = f"core {row.core} of socket {row.socket}"
            yield Inconsistency(position, "numa", f"{core} lies in NUMA nodes {numa} and {row.numa}")
        if row.numa not in socket_of_numa and len(socket_of_numa) == MAX_NUMA_NODES:
            yield Inconsistency(position, "numa", f"there are more than {MAX_NUMA_NODES} NUMA nodes")
        socket = socket_of_numa.setdefault(row.numa, row.socket)
        if socket != row.socket:
            places = f"sockets {socket} and {row.socket}"
            yield Inconsistency(position, "socket", f"NUMA node {row.numa} lies in {places}")


# The pools of CPUs for pods that have no CPUs of their own.


@dataclass(frozen=True, slots=True)
class SharedPool:
    """The logical CPUs that unbound pods share on one NUMA node of one socket."""

    socket: int
    numa: int
    cpus: CpuSet


def shared_pools(topology: CpuTopology, exclusive: CpuSet, withheld: CpuSet) -> tuple[SharedPool, ...]:
    """Return the pools of a host by socket and NUMA node, without exclusive and withheld CPUs.

    Exclusive are kubelet-managed CPUs and the CPUs of pods: for the LS pools of every pod with a list of its
    own, for the BE pools of LSE pods only. Withheld are the node's reservation and an exclusive SYSTEM list.
    NUMA nodes that are wholly exclusive have no pool; the others have one, even if it is empty.
    Source: koordinator.md, "Pools".
    """
    pools = (SharedPool(socket, numa, cpus - exclusive) for socket, numa, cpus in topology.places)
    return trimmed((pool for pool in pools if pool.cpus), withheld)


def trimmed(pools: Iterable[SharedPool], withheld: CpuSet) -> tuple[SharedPool, ...]:
    """Return pools without these CPUs. Source: koordinator.md, "Pools"."""
    return tuple(SharedPool(pool.socket, pool.numa, pool.cpus - withheld) for pool in pools)
