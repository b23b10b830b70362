"""What a pod asks of nodes that refused it for want of amounts: the comparisons of the filter once more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.domain.explanation import Kind
from placement.forest.arrays import Amounts, Indices
from placement.scheduling.columns.filter import (
    Asked,
    amplified_cpu,
    host_amounts,
    on_all_numa_nodes,
    on_numa_node,
    own_cpus,
    stays_on_one,
)
from placement.scheduling.columns.node_numbers import NUMA_NODES
from placement.scheduling.columns.table import Table


def asked_at(kind: Kind, table: Table, request: PodRequest | None) -> list[Asked]:
    """The amounts that a condition of this kind compares; none if it is not about amounts."""
    if kind is Kind.AMOUNT:
        return list(host_amounts(table, request))
    if request is None:
        return []
    if kind is Kind.AMPLIFIED_CPU:
        return [amplified_cpu(table, request)]
    if kind is Kind.CPUS:
        return [own_cpus(table, request)]
    return _of_numa_nodes(table, request) if kind is Kind.NUMA else []


def _of_numa_nodes(table: Table, request: PodRequest) -> list[Asked]:
    """What all NUMA nodes are asked for; where one has to do, what is asked of the one that lacks least."""
    asked = [*on_all_numa_nodes(table, request), own_cpus(table, request)]
    single = stays_on_one(table, request)
    if not single.any():
        return asked
    places = [list(on_numa_node(table, request, place)) for place in range(table.numa_nodes)]
    gaps = np.array([np.sum([each.gap for each in place], axis=0) for place in places])
    for place in range(len(places)):
        gaps[place][table[NUMA_NODES] <= place] = np.inf
    nearest = np.argmin(gaps, axis=0)
    return [
        *(each._replace(wanted=np.where(single, 0, each.wanted)) for each in asked),
        *(
            alike[0]._replace(
                wanted=np.where(single, _chosen([each.wanted for each in alike], nearest), 0),
                free=_chosen([each.free for each in alike], nearest),
            )
            for alike in zip(*places, strict=True)
        ),
    ]


def _chosen(by_place: Sequence[Amounts], place: Indices) -> Amounts:
    """For each node the number of one of its places."""
    return np.stack(by_place)[place, np.arange(len(place))]
