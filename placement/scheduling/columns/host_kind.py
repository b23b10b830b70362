"""What nodes have in common that treat pods alike: decided once for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.amplification import bound_cost
from placement.numa.policies import BindPolicy, NumaPolicy
from placement.scheduling.binding import HostBinding
from placement.scheduling.host import Host


class HostKind(NamedTuple):
    """The policies of hosts, and what a bound CPU costs there."""

    bind: HostBinding
    numa_policy: NumaPolicy
    ratio: Fraction


def kind_of(host: Host) -> HostKind:
    """The kind of a host."""
    return HostKind(host.bind, host.numa_policy, host.state.cpu_ratio)


def binds(request: PodRequest, kind: HostKind) -> bool:
    """Whether a pod gets CPUs of its own on hosts of a kind."""
    return kind.bind.binds(request)


def cpu_cost(request: PodRequest, kind: HostKind) -> int:
    """The millicores that a pod costs on hosts of a kind."""
    milli = request.milli_cpus
    return bound_cost(milli, kind.ratio) if binds(request, kind) else milli


def thinning(request: PodRequest, kind: HostKind) -> BindPolicy | None:
    """The strict bind policy that leaves a pod some free CPUs of a host only; NONE if it has all of them.

    None if the pod is not bound there.
    """
    cpus = kind.bind.demand(request)
    if cpus is None:
        return None
    return cpus.bind if cpus.strict else BindPolicy.NONE


def effective_policy(request: PodRequest, kind: HostKind) -> NumaPolicy | None:
    """The NUMA policy of a pod on hosts of a kind, None if theirs and its own differ."""
    policies = {kind.numa_policy, request.numa.policy} - {NumaPolicy.NONE}
    return next(iter(policies), NumaPolicy.NONE) if len(policies) < 2 else None
