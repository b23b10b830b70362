"""ConstrainedBurst: pods that need a shared pool as large as their CPU limit."""

from __future__ import annotations

from collections.abc import Iterable

from placement.domain.explanation import Kind, Obstacle
from placement.numa.host import HostState
from placement.numa.refusal import Refused

POOLS_TOO_SMALL = "node(s) CPU shared pools do not cover the pod's CPU limit"


def covers(host: HostState, numa_ids: Iterable[int], limit: int) -> bool:
    """Whether the LS pool of any of these NUMA nodes has that many millicores.

    Source: koordinator.md, "ConstrainedBurst".
    """
    return any(_pool_size(host, numa) >= limit for numa in numa_ids)


def choose_pool(host: HostState, numa_ids: Iterable[int], limit: int) -> int:
    """The NUMA node whose LS pool covers the limit, the smallest or the largest such as the strategy asks.

    Raises Refused if there is none. Source: koordinator.md, "ConstrainedBurst".
    """
    sign = 1 if host.rules.fullest_first else -1
    sizes = ((sign * _pool_size(host, numa), numa) for numa in numa_ids if covers(host, [numa], limit))
    chosen = min(sizes, default=None)
    if chosen is None:
        raise Refused(POOLS_TOO_SMALL, obstacle=Obstacle(Kind.SHARED_POOL))
    return chosen[1]


def _pool_size(host: HostState, numa: int) -> int:
    return 1000 * (host.shared_pool & host.layout.numa_nodes.get(numa, 0)).bit_count()
