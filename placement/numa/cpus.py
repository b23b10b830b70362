"""The logical CPUs of one host and how they sit on cores, NUMA nodes and sockets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from placement.numa.cpuset import CpuSet

CoreId = tuple[int, int]
"""A physical core: (socket, core). Core numbers alone may repeat from socket to socket."""

_Place = TypeVar("_Place", int, CoreId)


class LogicalCpu(NamedTuple):
    """One hardware thread and where it sits; four non-negative ids."""

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

    Expects rows without inconsistencies (`consistency.find_inconsistencies`).
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

    @property
    def threads_per_core(self) -> int:
        """CPUs // cores over the whole host, 0 when there are none; an offline sibling lowers it.

        Source: koordinator.md, "Derived numbers".
        """
        return _share(len(self.rows), len(self.cores))

    @property
    def cpus_per_numa_node(self) -> int:
        """CPUs // NUMA nodes over the whole host, 0 when there are none."""
        return _share(len(self.rows), len(self.numa_nodes))

    @property
    def cpus_per_socket(self) -> int:
        """CPUs // sockets over the whole host, 0 when there are none."""
        return _share(len(self.rows), len(self.sockets))


def _grouped(
    rows: Iterable[LogicalCpu], place: Callable[[LogicalCpu], _Place]
) -> Mapping[_Place, tuple[int, ...]]:
    groups: dict[_Place, list[int]] = defaultdict(list)
    for row in rows:
        groups[place(row)].append(row.cpu)
    return {key: tuple(groups[key]) for key in sorted(groups)}


def _share(cpus: int, places: int) -> int:
    return cpus // places if places else 0
