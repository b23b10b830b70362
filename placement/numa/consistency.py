"""What makes a reported CPU topology unusable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placement.numa.cpus import LogicalCpu

MAX_ID = 4096
MAX_NUMA_NODES = 64


class Inconsistency(NamedTuple):
    """What is wrong with a row: its position, the offending field of LogicalCpu, and a sentence."""

    row: int
    field: str
    text: str


def find_inconsistencies(rows: Sequence[LogicalCpu]) -> list[Inconsistency]:
    """Everything that contradicts itself in rows of any four integers, in the order of the rows.

    Negative ids, ids above 4096, a CPU named twice, a core in two NUMA nodes, a NUMA node in two sockets,
    more than 64 NUMA nodes. Source: koordinator.md, "CPU topology".
    """
    return sorted([*_bad_ids(rows), *_repeated_cpus(rows), *_scattered(rows), *_too_many_numa_nodes(rows)])


def _bad_ids(rows: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    for position, row in enumerate(rows):
        for field, value in row._asdict().items():
            if value < 0:
                yield Inconsistency(position, field, f"{value} is negative")
            elif value > MAX_ID:
                yield Inconsistency(position, field, f"{value} is above {MAX_ID}")


def _repeated_cpus(rows: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    seen: set[int] = set()
    for position, row in enumerate(rows):
        if row.cpu in seen:
            yield Inconsistency(position, "cpu", f"CPU {row.cpu} is listed twice")
        seen.add(row.cpu)


def _scattered(rows: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    numa_of_core: dict[tuple[int, int], int] = {}
    socket_of_numa: dict[int, int] = {}
    for position, row in enumerate(rows):
        numa = numa_of_core.setdefault(row.core_id, row.numa)
        if numa != row.numa:
            core = f"core {row.core} of socket {row.socket}"
            yield Inconsistency(position, "numa", f"{core} lies in NUMA nodes {numa} and {row.numa}")
        socket = socket_of_numa.setdefault(row.numa, row.socket)
        if socket != row.socket:
            places = f"sockets {socket} and {row.socket}"
            yield Inconsistency(position, "socket", f"NUMA node {row.numa} lies in {places}")


def _too_many_numa_nodes(rows: Sequence[LogicalCpu]) -> Iterator[Inconsistency]:
    seen: set[int] = set()
    for position, row in enumerate(rows):
        seen.add(row.numa)
        if len(seen) > MAX_NUMA_NODES:
            yield Inconsistency(position, "numa", f"there are more than {MAX_NUMA_NODES} NUMA nodes")
            return
