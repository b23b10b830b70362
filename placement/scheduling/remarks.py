"""What people should know who wonder about a place: remarks, and reasons in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.demand import BindPolicy, Distribution, ExclusiveLevel, NumaPolicy
from placement.numa.refusal import Refused
from placement.scheduling.host import Host
from placement.scheduling.host_demand import alignment_on, demand_on


def remarks_on(host: Host, request: PodRequest) -> tuple[str, ...]:
    """What is remarkable about a pod on a host, one sentence each, whether it fits there or not.

    Source: koordinator.md, "Hardware", "Warnings and remarks".
    """
    return (*_on_binding(host, request), *_on_amplification(host, request), *_on_alignment(host, request))


def _on_binding(host: Host, request: PodRequest) -> Iterator[str]:
    cpus, policy = demand_on(host, request).cpus, host.bind.policy
    if cpus is None:
        return
    if not request.bound:
        yield f"the host's bind policy {policy} gives CPUs of their own to all pods that request CPUs"
    if request.preferred_bind and cpus.strict and cpus.bind is not request.preferred_bind:
        yield f"the preferred bind policy {request.preferred_bind} gives way to the required {cpus.bind}"
    if host.bind.whole_cores_only:
        if BindPolicy.SPREAD_BY_PCPUS in (request.required_bind, request.preferred_bind):
            yield "SpreadByPCPUs has no effect on ARM, which knows FullPCPUs only"
        if request.exclusive is ExclusiveLevel.PCPU_LEVEL:
            yield "PCPULevel has no effect on ARM, which knows NUMANodeLevel only"
    elif host.state.layout.threads == 1:
        if cpus.bind is BindPolicy.SPREAD_BY_PCPUS:
            yield "cores have one thread: SpreadByPCPUs chooses as FullPCPUs does"
        if cpus.exclusive is ExclusiveLevel.PCPU_LEVEL:
            yield "cores have one thread: PCPULevel has no neighbours to avoid"


def _on_amplification(host: Host, request: PodRequest) -> Iterator[str]:
    ratio = float(host.state.cpu_ratio)
    if ratio > 1 and demand_on(host, request).cpus is not None:
        yield f"the host advertises more CPUs than it has: each bound CPU costs {ratio:g}"


def _on_alignment(host: Host, request: PodRequest) -> Iterator[str]:
    try:
        policy = alignment_on(host, request).policy
    except Refused:
        return
    distributes = host.state.rules.distribution is Distribution.OVER_ALL
    if distributes and policy is NumaPolicy.SINGLE_NUMA_NODE and demand_on(host, request).cpus is not None:
        yield "DistributeEvenly gives way to the NUMA policy SingleNUMANode: the pod stays on one NUMA node"
    if policy is NumaPolicy.SINGLE_NUMA_NODE and len(host.state.capacity) == 1:
        yield "the host has one NUMA node: aligned pods are not accounted for there"


_UNALIGNED = "Unaligned NUMA Hint cause "
_HINT = re.compile(r"([^ ,]+) prefer \[[01 ]*\] among \[([01 ]*)\]")


def in_plain_words(reason: str) -> str:
    """The reason, with what it means behind it if it needs that."""
    if not reason.startswith(_UNALIGNED):
        return reason
    places = "; ".join(f"{resource} fits on {_places(masks)}" for resource, masks in _HINT.findall(reason))
    return f"{reason} ({places}; the NUMA policy of the pod or of the node admits none of that)"


def _places(masks: str) -> str:
    """Sets of NUMA nodes, given as binary numbers whose last digit is NUMA node 0."""
    sets = [[numa for numa, digit in enumerate(reversed(mask)) if digit == "1"] for mask in masks.split()]
    return " or ".join(f"NUMA node{'s' * (len(ids) > 1)} {'+'.join(map(str, ids))}" for ids in sets)
