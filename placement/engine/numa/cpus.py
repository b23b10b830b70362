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

_GroupKey = TypeVar("_GroupKey", int, CoreId)


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

    `per_core`: a core is whole with the CPUs that it has. Otherwise one average counts for all cores.
    Expects rows without inconsistencies (`find_inconsistencies`). Source: koordinator.md, "Derived numbers".
    """

    logical_cpus: tuple[LogicalCpu, ...] = ()
    per_core: bool = False

    def __post_init__(self) -> None:
        # Two reports of the same host must be equal however their rows were ordered.
        object.__setattr__(self, "logical_cpus", tuple(sorted(self.logical_cpus)))

    @cached_property
    def by_cpu(self) -> Mapping[int, LogicalCpu]:
        """The row of each logical CPU id, ascending."""
        return {row.cpu: row for row in self.logical_cpus}

    @cached_property
    def cpus(self) -> CpuSet:
        """All logical CPU ids."""
        return frozenset(self.by_cpu)

    @cached_property
    def cores(self) -> Mapping[CoreId, tuple[int, ...]]:
        """The ascending logical CPU ids of each physical core, cores ascending by (socket, core)."""
        return _grouped(self.logical_cpus, lambda row: row.core_id)

    @cached_property
    def numa_nodes(self) -> Mapping[int, tuple[int, ...]]:
        """The ascending logical CPU ids of each NUMA node that has CPUs, NUMA ids ascending."""
        return _grouped(self.logical_cpus, lambda row: row.numa)

    @cached_property
    def joined_sockets(self) -> Mapping[int, int]:
        """The socket as which each reported socket counts: sockets with a common NUMA node are one.

        That is the lowest of them. Source: koordinator.md, "CPU topology".
        """
        joined = {row.socket: row.socket for row in self.logical_cpus}
        reported: dict[int, set[int]] = defaultdict(set)
        for row in self.logical_cpus:
            reported[row.numa].add(row.socket)
        for sockets in reported.values():
            ids = {joined[socket] for socket in sockets}
            if len(ids) > 1:
                joined = {socket: min(ids) if at in ids else at for socket, at in joined.items()}
        return joined

    @cached_property
    def socket_of_numa(self) -> Mapping[int, int]:
        """The socket of each NUMA node."""
        return {row.numa: self.joined_sockets[row.socket] for row in self.logical_cpus}

    @cached_property
    def sockets(self) -> Mapping[int, tuple[int, ...]]:
        """The ascending logical CPU ids of each socket, socket ids ascending."""
        return _grouped(self.logical_cpus, lambda row: self.joined_sockets[row.socket])

    @cached_property
    def places(self) -> tuple[tuple[int, int, CpuSet], ...]:
        """The socket, the id and the logical CPU ids of each NUMA node that has CPUs, ascending."""
        socket_of = self.socket_of_numa
        found = ((socket_of[numa], numa, frozenset(cpus)) for numa, cpus in self.numa_nodes.items())
        return tuple(sorted(found, key=lambda place: place[:2]))

    @property
    def is_uneven(self) -> bool:
        """Whether some cores have more CPUs than others."""
        return len({len(threads) for threads in self.cores.values()}) > 1

    @property
    def threads_per_core(self) -> int:
        """How many CPUs a core has, 0 when there are none.

        That is CPUs // cores, which an offline sibling lowers. Counted per core it is the number of the
        largest core. Source: koordinator.md, "Derived numbers".
        """
        if self.per_core:
            return max(map(len, self.cores.values()), default=0)
        return len(self.logical_cpus) // len(self.cores) if self.cores else 0


def _grouped(
    logical_cpus: Iterable[LogicalCpu], place: Callable[[LogicalCpu], _GroupKey]
) -> Mapping[_GroupKey, tuple[int, ...]]:
    groups: dict[_GroupKey, list[int]] = defaultdict(list)
    for logical_cpu in logical_cpus:
        groups[place(logical_cpu)].append(logical_cpu.cpu)
    return {key: tuple(groups[key]) for key in sorted(groups)}


class CpuLayout:
    """The cores, NUMA nodes and sockets of a host as masks of CPU ids; equal topologies share one.

    `cores` are ascending by (socket, core), `numa_nodes` and `sockets` by id. `threads`, `numa_size` and
    `socket_size` are averages over the whole host, rounded down; `threads` of the largest core where CPUs
    are counted per core. `is_uneven`: they are, and cores differ. Source: koordinator.md, "Derived numbers".
    """

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        self.cpus = mask_of(topology.cpus)
        self.threads = topology.threads_per_core
        self.is_uneven = topology.per_core and topology.is_uneven
        self.cores = tuple(mask_of(cpus) for cpus in topology.cores.values())
        self.numa_nodes = {numa: mask_of(cpus) for numa, cpus in topology.numa_nodes.items()}
        self.sockets = {socket: mask_of(cpus) for socket, cpus in topology.sockets.items()}
        self.numa_size = len(topology.logical_cpus) // max(1, len(self.numa_nodes))
        self.socket_size = len(topology.logical_cpus) // max(1, len(self.sockets))

    @property
    def socket_of_numa(self) -> Mapping[int, int]:
        """The socket of each NUMA node."""
        return self.topology.socket_of_numa

    @cached_property
    def core_places(self) -> tuple[tuple[int, int, int], ...]:
        """The mask, NUMA node and socket of each core, in the order of `cores`."""
        numa_ids = (self.topology.by_cpu[cpus[0]].numa for cpus in self.topology.cores.values())
        return tuple(
            (mask, numa, self.socket_of_numa[numa]) for mask, numa in zip(self.cores, numa_ids, strict=True)
        )

    @cached_property
    def cores_of_numa(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each NUMA node, in core order."""
        return {
            numa: tuple(mask for mask, place, _ in self.core_places if place == numa)
            for numa in self.numa_nodes
        }

    @cached_property
    def shape_of_numa(self) -> Mapping[int, tuple[int, ...]]:
        """The core of each CPU of a NUMA node, CPUs ascending; the cores of the NUMA node count from 0."""
        shapes = {}
        for numa, cores in self.cores_of_numa.items():
            place_of = {cpu: place for place, core in enumerate(cores) for cpu in members_of(core)}
            shapes[numa] = tuple(place_of[cpu] for cpu in sorted(place_of))
        return shapes

    @cached_property
    def cores_of_socket(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each socket, in core order."""
        return {
            socket: tuple(mask for mask, _, place in self.core_places if place == socket)
            for socket in self.sockets
        }

    def whole_cores(self, free: int) -> int:
        """Return the CPUs of `free` on cores with `threads` of them free; if uneven, all they have."""
        threads, whole = self.threads, 0
        for core in self.cores:
            rest = free & core
            if rest == core if self.is_uneven else rest.bit_count() == threads:
                whole |= rest
        return whole

    def fills_cores(self, cpus: int) -> bool:
        """Return whether these are all CPUs of the cores that they touch."""
        if self.is_uneven:
            return self.cores_touching(cpus) == cpus
        return sum(1 for core in self.cores if core & cpus) * self.threads == cpus.bit_count()

    def can_be_whole(self, count: int) -> bool:
        """Return whether whole cores can have that many CPUs together, on a host that is large enough."""
        if not self.is_uneven:
            return not count % self.threads
        return count > len(self.topology.logical_cpus) or bool(self._sums >> count & 1)

    @cached_property
    def _sums(self) -> int:
        return sums_of(core.bit_count() for core in self.cores)

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


def sums_of(sizes: Iterable[int]) -> int:
    """Return the sums that some of these positive numbers can have, as a mask; 0 is always one."""
    sums = 1
    for size in sizes:
        sums |= sums << size
    return sums


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


MAX_ID = 4096
MAX_NUMA_NODES = 64


class Inconsistency(NamedTuple):
    """A fault of a row: its position, the offending field of LogicalCpu, and a sentence."""

    row: int
    field: str
    text: str


def find_inconsistencies(logical_cpus: Sequence[LogicalCpu]) -> list[Inconsistency]:
    """Return all inconsistencies in rows of any four integers, in the order of the rows.

    These are: negative ids, ids above 4096, a CPU named twice, a core in two NUMA nodes, more than 64 NUMA
    nodes. Source: koordinator.md, "CPU topology".
    """
    return sorted(_inconsistencies(logical_cpus))


def _inconsistencies(logical_cpus: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    cpus: set[int] = set()
    numa_of_core: dict[tuple[int, int], int] = {}
    numa_nodes: set[int] = set()
    for position, logical_cpu in enumerate(logical_cpus):
        for field, value in logical_cpu._asdict().items():
            if value < 0:
                yield Inconsistency(position, field, f"{value} is negative")
            elif value > MAX_ID:
                yield Inconsistency(position, field, f"{value} is above {MAX_ID}")
        if logical_cpu.cpu in cpus:
            yield Inconsistency(position, "cpu", f"CPU {logical_cpu.cpu} is listed twice")
        cpus.add(logical_cpu.cpu)
        numa = numa_of_core.setdefault(logical_cpu.core_id, logical_cpu.numa)
        if numa != logical_cpu.numa:
            core = f"core {logical_cpu.core} of socket {logical_cpu.socket}"
            yield Inconsistency(position, "numa", f"{core} lies in NUMA nodes {numa} and {logical_cpu.numa}")
        if logical_cpu.numa not in numa_nodes and len(numa_nodes) == MAX_NUMA_NODES:
            yield Inconsistency(position, "numa", f"there are more than {MAX_NUMA_NODES} NUMA nodes")
        numa_nodes.add(logical_cpu.numa)


# The pools of CPUs for pods that have no CPUs of their own.


@dataclass(frozen=True, slots=True)
class SharedPool:
    """The logical CPUs that unbound pods share on one NUMA node of one socket."""

    socket: int
    numa: int
    cpus: CpuSet


def shared_pools(
    topology: CpuTopology, exclusive_cpus: CpuSet, withheld_cpus: CpuSet
) -> tuple[SharedPool, ...]:
    """Return the pools of a host by socket and NUMA node, without exclusive and withheld CPUs.

    Exclusive are kubelet-managed CPUs and the CPUs of pods: for the LS pools of every pod with a list of its
    own, for the BE pools of LSE pods only. Withheld are the node's reservation and an exclusive SYSTEM list.
    NUMA nodes that are wholly exclusive have no pool; the others have one, even if it is empty.
    Source: koordinator.md, "Pools".
    """
    pools = (SharedPool(socket, numa, cpus - exclusive_cpus) for socket, numa, cpus in topology.places)
    return trimmed((pool for pool in pools if pool.cpus), withheld_cpus)


def trimmed(pools: Iterable[SharedPool], withheld_cpus: CpuSet) -> tuple[SharedPool, ...]:
    """Return pools without these CPUs. Source: koordinator.md, "Pools"."""
    return tuple(SharedPool(pool.socket, pool.numa, pool.cpus - withheld_cpus) for pool in pools)
