"""How many more pods of one shape each node has room for, as far as columns can tell.

On nodes where only amounts count that is exact. Where a pod gets CPUs of its own or is aligned to NUMA
nodes, it is what there is at most: what really fits is found out by placing one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.forest.arrays import Amounts, Mask, Rows
from placement.numa.demand import BindPolicy, NumaPolicy
from placement.numa.host import FACE_VALUE
from placement.scheduling.columns.filter import (
    Asked,
    amplified_cpu,
    has_room,
    host_amounts,
    is_aligned,
    on_all_numa_nodes,
    own_cpus,
    selected,
)
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.node_numbers import VAST, free_cpus
from placement.scheduling.columns.table import Table, binds, thinning
from placement.scheduling.pipeline import PodShape

_MOST = 2**40


@dataclass(frozen=True, slots=True)
class Amount:
    """What a node has of a class for pods: `free` and `wanted` by each, in its units."""

    resource_class: str
    free: int
    wanted: int


class PodColumns:
    """The nodes that a pod may go to by names, labels and taints, and how many more pods each could take."""

    def __init__(self, columns: NodeColumns, shape: PodShape) -> None:
        self.rows: Rows = np.flatnonzero(selected(columns, shape.selection))
        table = columns.table.rows(self.rows)
        request = shape.request
        self._asked = [asked for asked in _asked(table, request) if (asked.wanted > 0).any()]
        fits = has_room(table, request)
        self._most = np.full(len(self.rows), _MOST, np.int64)
        for asked in self._asked:
            np.minimum(self._most, _times(asked), out=self._most)
        self._most = np.where(fits, self._most, 0)
        self._exact = _is_plain(table, request) & ~(table[VAST] > 0) | (self._most == 0)

    def counts(self) -> Sequence[tuple[int, bool]]:
        """For each row how many pods at most, and whether exactly so many."""
        return list(zip(self._most.tolist(), self._exact.tolist(), strict=True))

    def sums(self, taking: Sequence[bool]) -> dict[str, tuple[Amount, int]]:
        """All rows together by class, the most that is wanted, and what those have of it that take no pod."""
        refusing = ~np.array(taking, np.bool_)
        found: dict[str, tuple[Amount, int]] = {}
        for asked in self._asked:
            concerned = asked.wanted > 0
            if concerned.any() and asked.resource_class not in found:
                free = np.where(concerned, np.maximum(asked.free, 0) // asked.unit, 0)
                wanted = -(-int(asked.wanted.max()) // asked.unit)
                amount = Amount(asked.resource_class, int(free.sum()), wanted)
                found[asked.resource_class] = (amount, int(free[refusing].sum()))
        return found

    def amounts(self, at: int) -> Iterator[Amount]:
        """What the node at this place among the rows has of each class, what runs out first first."""
        order = sorted(self._asked, key=lambda asked: int(_times(asked)[at]))
        told = set()
        for asked in order:
            if asked.wanted[at] > 0 and asked.resource_class not in told:
                told.add(asked.resource_class)
                yield Amount(asked.resource_class, asked.free_units(at), max(1, asked.wanted_units(at)))


def _asked(table: Table, request: PodRequest | None) -> Iterator[Asked]:
    yield from host_amounts(table, request)
    if request is None:
        return
    yield amplified_cpu(table, request)
    yield _cpus_one_after_another(table, request)
    aligned = is_aligned(table, request)
    for asked in on_all_numa_nodes(table, request):
        yield asked._replace(wanted=np.where(aligned, asked.wanted, 0))


def _cpus_one_after_another(table: Table, request: PodRequest) -> Asked:
    """Beside a CPU that alone of its core was given to one pod, its sibling may be given to the next."""
    asked = own_cpus(table, request)
    spread = table.where_kind(lambda kind: thinning(request, kind) is BindPolicy.SPREAD_BY_PCPUS)
    return asked._replace(free=np.where(spread, table[free_cpus(BindPolicy.NONE)], asked.free))


def _times(asked: Asked) -> Amounts:
    times: Amounts = np.where(
        asked.wanted > 0, np.maximum(asked.free, 0) // np.maximum(asked.wanted, 1), _MOST
    )
    return np.minimum(times, _MOST)


def _is_plain(table: Table, request: PodRequest | None) -> Mask:
    """Where nothing but amounts of the host as a whole decides."""
    if request is None:
        return np.ones(len(table), np.bool_)
    if request.designated is not None or request.burst_limit is not None:
        return np.zeros(len(table), np.bool_)
    return table.where_kind(
        lambda kind: (
            not binds(request, kind)
            and {kind.numa_policy, request.numa.policy} == {NumaPolicy.NONE}
            and kind.ratio <= FACE_VALUE
        )
    )
