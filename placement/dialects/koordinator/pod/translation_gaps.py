"""What queries for allocation candidates cannot say about a pod, in plain words.

Source: koordinator.md, "What granular syntax cannot say".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.kubernetes.node_selection import NodeSelection
from placement.kubernetes.pod_rules import PodRules
from placement.numa.demand import (
    BindPolicy,
    ExclusiveLevel,
    NumaExclusivity,
    NumaPolicy,
)

_MANY_GROUPS = 8


def gaps_of(
    request: PodRequest | None,
    selection: NodeSelection,
    rules: PodRules,
    label_keys: Collection[str],
    *,
    amplified: bool,
    bound_by_hosts: bool,
) -> list[str]:
    """Everything about a pod that its queries leave out, one sentence each.

    `label_keys` are labels that are traits; `amplified`: some hosts advertise more CPUs than they have;
    `bound_by_hosts`: some hosts bind every pod that requests CPUs.
    """
    found = list(_about_nodes(selection, label_keys))
    if rules:
        found.append("pod affinity and topology spread: queries know nothing of the pods that are placed")
    if request is not None:
        found.extend(_about_cpus(request, amplified, bound_by_hosts))
        found.extend(_about_numa_nodes(request))
    return found


def _about_nodes(selection: NodeSelection, label_keys: Collection[str]) -> Iterator[str]:
    left_out = sorted(key for key, _ in selection.selector if key not in label_keys)
    if left_out:
        keys = ", ".join(left_out)
        yield f"nodeSelector: {keys} are no traits; name them in the cluster's setting nodeLabels"
    if selection.terms is not None:
        yield "required node affinity: expressions about labels have no form as traits"
    yield "taints and unschedulable nodes: queries find hosts that the pod may not go to"


def _about_cpus(request: PodRequest, amplified: bool, bound_by_hosts: bool) -> Iterator[str]:
    if request.bound and request.need:
        yield "which threads of a core: PCPU counts threads, logical CPUs are chosen when the pod is placed"
        yield "which cores are best: the order of candidates knows no sockets, broken cores or strategies"
        if not request.required_bind:
            yield "preference: ask the queries in turn, each stands for what is acceptable next"
        if request.need > _MANY_GROUPS:
            yield "size: cores that are alike can be combined in very many ways; ask with a small limit"
        if request.required_bind is BindPolicy.FULL_PCPUS:
            yield "whole cores: hosts whose threads per core do not divide the request are left out"
    if amplified and request.bound:
        yield "amplification: a bound CPU costs the ratio of its host, queries ask for the plain amount"
    if bound_by_hosts and not request.bound and request.milli_cpus:
        yield "host bind policies: some hosts give every pod CPUs of its own, queries do not ask for them"
    if request.exclusive is not ExclusiveLevel.NONE:
        yield f"exclusivity: {request.exclusive} depends on the levels of the neighbours"
    if request.burst_limit is not None:
        yield "ConstrainedBurst: the size of the shared pools is in no inventory"


def _about_numa_nodes(request: PodRequest) -> Iterator[str]:
    if request.numa.policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
        yield "split: queries split evenly over NUMA nodes, placing fills the poorest first"
    if request.numa.effective_exclusivity is not NumaExclusivity.NONE:
        yield "NUMA exclusivity: whether pods of one and of several NUMA nodes meet is in no inventory"
