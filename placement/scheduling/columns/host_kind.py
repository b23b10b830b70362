"""What nodes have in common that treat pods alike: decided once for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from placement.dialects.koordinator.node.host_policies import HostBindPolicy, pod_bind_policy
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.amplification import bound_cost
from placement.numa.policies import BindPolicy, NumaPolicy
from placement.scheduling.host import Host


class HostKind(NamedTuple):
    """The policies of hosts, and what a bound CPU costs there."""

    bind: HostBindPolicy
    numa_policy: NumaPolicy
    ratio: Fraction


def kind_of(host: Host) -> HostKind:
    """The kind of a host."""
    return HostKind(host.bind, host.numa_policy, host.state.cpu_ratio)


def binds(request: PodRequest, kind: HostKind) -> bool:
    """Whether a pod gets CPUs of its own on hosts of a kind (`host_demand.is_bound_on`)."""
    return request.bound or (kind.bind is not HostBindPolicy.NONE and request.milli_cpus > 0)


def cpu_cost(request: PodRequest, kind: HostKind) -> int:
    """The millicores that a pod costs on hosts of a kind."""
    milli = request.milli_cpus
    return bound_cost(milli, kind.ratio) if binds(request, kind) else milli


def thinning(request: PodRequest, kind: HostKind) -> BindPolicy | None:
    """The strict bind policy that leaves a pod some free CPUs of a host only; NONE if it has all of them.

    None if the pod is not bound there.
    """
    if not binds(request, kind):
        return None
    bind, strict = pod_bind_policy(kind.bind, request.required_bind, request.preferred_bind)
    return BindPolicy(bind) if strict else BindPolicy.NONE


def effective_policy(request: PodRequest, kind: HostKind) -> NumaPolicy | None:
    """The NUMA policy of a pod on hosts of a kind, None if theirs and its own differ."""
    policies = {kind.numa_policy, request.numa.policy} - {NumaPolicy.NONE}
    return next(iter(policies), NumaPolicy.NONE) if len(policies) < 2 else None
