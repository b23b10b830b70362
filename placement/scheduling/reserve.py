"""Giving a pod its place on a host, and writing down which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.dialects.koordinator.pod.annotations import (
    NOTHING_GIVEN,
    ResourceSpec,
    ResourceStatus,
    completed_spec,
    status_document,
)
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.qos import QosClass
from placement.numa.alignment.alignment import Alignment, choose_affinity
from placement.numa.allocator import Allocation
from placement.numa.amounts import NumaAmounts
from placement.numa.cpuset import members_of
from placement.numa.demand import BindPolicy, ExclusiveLevel, NumaPolicy, PodDemand
from placement.numa.ledger import Holding
from placement.numa.reservations import NO_RESERVATIONS, Placing, Reservations
from placement.scheduling.host import Host
from placement.scheduling.host_demand import alignment_on, demand_on
from placement.scheduling.numa_fit import Fit, choose_pool

_POOL_POLICIES = (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """What a pod gets on a host, and the bind policy under which its CPUs were chosen.

    `bind` is NONE for pods that are not bound; `strict` if the policy had to be kept.
    """

    status: ResourceStatus = NOTHING_GIVEN
    bind: BindPolicy = BindPolicy.NONE
    strict: bool = False
    level: ExclusiveLevel = ExclusiveLevel.NONE
    group: str = ""

    @property
    def lifts_cfs_quota(self) -> bool:
        """Whether the containers' CFS quota should be lifted: on CPUs of their own it only throttles them."""
        return bool(self.status.cpus)

    def holding(self, qos: QosClass) -> Holding:
        """What to record for the pod, whose label names that class."""
        return self.status.holding(self.level, qos, self.group)

    def annotations(self, spec: ResourceSpec) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The pod's resource-status, empty if it was given nothing, and its completed resource-spec.

        Source: koordinator.md, "What is written".
        """
        return status_document(self.status), completed_spec(spec, self.bind, self.strict)


def allocate_on_host(
    host: Host,
    request: PodRequest | None,
    fit: Fit,
    reservations: Reservations = NO_RESERVATIONS,
) -> PodAllocation:
    """What a pod gets on a host on which it was found to fit; nothing if nothing has to be remembered.

    Raises Refused if it does not fit after all. Source: koordinator.md, "Reserve".
    """
    if request is None:
        return PodAllocation()
    demand = demand_on(host, request)
    if fit.designated is not None:
        return _written(host, request, demand, fit.designated, ())
    alignment = alignment_on(host, request)
    allocation = try_allocate(host, demand, alignment, fit, reservations)
    pools = _pools(host, request, alignment, allocation.amounts) if demand.cpus is None else ()
    return _written(host, request, demand, allocation, pools)


def try_allocate(
    host: Host, demand: PodDemand, alignment: Alignment, fit: Fit, reservations: Reservations
) -> Allocation:
    """What the pod gets, without a word about it. Raises Refused."""
    if alignment.policy is NumaPolicy.NONE and demand.cpus is None:
        return Allocation()
    if reservations.nominated is None:
        reservations = replace(reservations, nominated=fit.nominated)
    placing = Placing(host.state, demand, reservations)
    affinity = fit.affinity
    if alignment.policy is NumaPolicy.BEST_EFFORT and affinity is None:
        affinity = choose_affinity(placing.widest_allocator, alignment, placing.fits)
    return placing.allocate(affinity)


def _written(
    host: Host,
    request: PodRequest,
    demand: PodDemand,
    allocation: Allocation,
    numa_ids: tuple[int, ...],
) -> PodAllocation:
    sockets = host.state.layout.socket_of_numa
    pools = tuple((sockets[numa], numa) for numa in numa_ids if numa in sockets)
    status = ResourceStatus(frozenset(members_of(allocation.cpus)), allocation.amounts, pools)
    if demand.cpus is None:
        return PodAllocation(status)
    return PodAllocation(status, demand.cpus.bind, demand.cpus.strict, request.exclusive, request.group)


def _pools(host: Host, request: PodRequest, alignment: Alignment, amounts: NumaAmounts) -> tuple[int, ...]:
    """The NUMA nodes in whose LS pools an unbound pod has to stay (koordinator.md, "Profiles")."""
    if request.burst_limit is not None:
        numa_ids = amounts or host.state.layout.numa_nodes
        return (choose_pool(host.state, numa_ids, request.burst_limit),)
    if not request.uses_ls_pools or alignment.policy not in _POOL_POLICIES:
        return ()
    if not amounts and len(host.state.capacity) == 1 and request.milli_cpus:
        # Aligned to the one NUMA node there is, without accounts of it.
        return tuple(host.state.capacity)
    return tuple(numa for numa, given in amounts.items() if "cpu" in given)
