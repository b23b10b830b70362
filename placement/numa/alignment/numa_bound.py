"""An upper bound of the score of a pod on the NUMA nodes of a host, found without placing it.

An upper bound for `host_score.score_on_numa_nodes` over all NUMA nodes that the pod might use. For any of
them together, what is used is at least the smallest share of a single one, and what is asked for is at least
its share of all. So hosts can be tried in the order of their bounds until no bound beats what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from placement.numa.accounts import numa_used
from placement.numa.amounts import NOTHING
from placement.numa.amplification import bound_cost
from placement.numa.demand import PodDemand
from placement.numa.host import HostState
from placement.numa.host_score import demand_costs
from placement.numa.split import CPU, MILLI
from placement.scoring.host import Use, best_score
from placement.scoring.strategy import Strategy


class Extremes(NamedTuple):
    """One resource on the NUMA nodes of a host: use and capacity where least and most of it is used.

    `smallest` is the smallest capacity of a single NUMA node, `total` that of all together.
    """

    least: tuple[int, int]
    most: tuple[int, int]
    smallest: int
    total: int


def numa_extremes(host: HostState) -> Mapping[str, Extremes]:
    """The extremes of all resources of which every NUMA node of a host has some."""
    if not host.capacity:
        return {}
    used = numa_used(host, host.use, NOTHING)
    found = {}
    for resource in set.intersection(*(set(row) for row in host.capacity.values())):
        places = [(used.get(numa, {}).get(resource, 0), row[resource]) for numa, row in host.capacity.items()]
        if all(capacity > 0 for _, capacity in places):
            by_share = sorted(places, key=lambda place: Fraction(*place))
            sizes = [capacity for _, capacity in places]
            found[resource] = Extremes(by_share[0], by_share[-1], min(sizes), sum(sizes))
    return found


def numa_bound(
    host: HostState, extremes: Mapping[str, Extremes], demand: PodDemand, scoring: Strategy
) -> int:
    """The score, 0 to 100, that no NUMA nodes of the host can exceed for a pod."""
    costs = demand_costs(host, demand)
    bound_cpus = demand.cpus is not None
    held = bound_cost(MILLI * host.use.held.bit_count(), host.cpu_ratio) if bound_cpus else 0
    uses = {}
    for resource, _ in scoring.resources:
        extreme = extremes.get(resource)
        if extreme is not None:
            if resource == CPU and bound_cpus:
                # All bound CPUs of the host count as used whatever NUMA nodes are chosen.
                extreme = extreme._replace(least=(held, extreme.total), most=(held, extreme.smallest))
            uses[resource] = _reach(extreme, costs.get(resource, 0))
    return best_score(scoring, uses, costs)


def _reach(extreme: Extremes, asked: int) -> tuple[Use, Use]:
    """Lowest and highest use of one resource together with what is asked for."""
    (least, wide), (most, narrow) = extreme.least, extreme.most
    lowest = least * extreme.total + asked * wide, wide * extreme.total
    highest = most * extreme.smallest + asked * narrow, narrow * extreme.smallest
    return lowest, highest
