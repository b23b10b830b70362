"""What a pod asks of one host in particular, where the policies of both meet."""

from __future__ import annotations

from placement.dialects.koordinator.node.host_policies import pod_bind_policy
from placement.dialects.koordinator.pod.annotations import merged_numa_policy
from placement.dialects.koordinator.pod.pod_request import CPUS_MUST_BE_INTEGER, PodRequest
from placement.domain.explanation import Kind, Obstacle
from placement.numa.alignment.alignment import Alignment
from placement.numa.demand import BindPolicy, PodDemand
from placement.numa.refusal import INVALID_TOPOLOGY, RefusalClass, Refused
from placement.scheduling.host import Host

BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_WHOLE_CORES = "node(s) requested cpus not multiple cpus per core"
UNREADABLE_PODS = "node(s) have pods with unreadable resource-status"


def demand_on(host: Host, request: PodRequest) -> PodDemand:
    """What a pod asks of a host.

    Source: koordinator.md, "Who is bound", "Strict bind policy".
    """
    return PodDemand(request.amounts, host.bind.demand(request))


def alignment_on(host: Host, request: PodRequest) -> Alignment:
    """How a pod is aligned on a host. Raises Refused if their NUMA policies differ.

    Source: koordinator.md, "Effective policy", "NUMA exclusivity".
    """
    return Alignment(
        merged_numa_policy(host.numa_policy, request.numa.policy),
        request.numa.effective_exclusivity,
        host.numa_scoring,
        host.favours_idle,
    )


def check_whole_cpus(host: Host, request: PodRequest) -> None:
    """Raise Refused if a host binds every pod and this one does not request whole CPUs.

    Source: koordinator.md, "Filter".
    """
    if host.bind.binds_all(request) and request.is_fractional:
        raise Refused(
            CPUS_MUST_BE_INTEGER, status=RefusalClass.UNRESOLVABLE, obstacle=Obstacle(Kind.WHOLE_CPUS)
        )


def check_binding(host: Host, request: PodRequest, demand: PodDemand) -> None:
    """Raise Refused if a host can never bind CPUs for this pod, if it has to.

    Source: koordinator.md, "Filter", "Recovery from pods".
    """
    cpus, layout = demand.cpus, host.state.layout
    if cpus is None:
        return
    if not layout.cpus:
        raise _unbindable(INVALID_TOPOLOGY)
    if host.unreadable_pods:
        names = ", ".join(host.unreadable_pods)
        raise _unbindable(f"{UNREADABLE_PODS}: {names}")
    required = host.bind.required(request)
    if required and pod_bind_policy(host.bind.policy, "", required)[0] != cpus.bind:
        raise _unbindable(BIND_CONFLICT)
    if cpus.strict and cpus.bind is BindPolicy.FULL_PCPUS and cpus.need % layout.threads:
        raise _unbindable(NOT_WHOLE_CORES)


def _unbindable(words: str) -> Refused:
    return Refused(words, status=RefusalClass.UNRESOLVABLE, obstacle=Obstacle(Kind.CPU_BINDING))
