"""Pods that run already: what they hold according to their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.node.kubelet import KubeletPolicy
from placement.dialects.koordinator.pod.admission import admission_violations, change_violations
from placement.dialects.koordinator.pod.annotations import (
    read_resource_spec,
    read_resource_status,
    read_told_pools,
)
from placement.dialects.koordinator.pod.gang import Gang, read_gang
from placement.dialects.koordinator.pod.pod_request import exclusive_level, exclusivity_group
from placement.dialects.koordinator.qos import (
    KubernetesQos,
    QosClass,
    kubernetes_qos,
    raw_qos,
    running_qos,
)
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.manifest import Manifest, Report
from placement.kubernetes.pod import Pod, occupied_amounts, read_pod, request_amounts
from placement.kubernetes.pod_rules import PodRules, read_pod_rules
from placement.numa.amounts import Amounts
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import format_cpu_list
from placement.numa.ledger import Holding


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What to record for a pod: nothing, its holding, or that its holding is unknown.

    `unreadable` are the findings about its resource-status. While there are any, no other pod may be bound on
    its host, as its CPUs could be handed out a second time.
    """

    holding: Holding | None = None
    unreadable: tuple[str, ...] = ()


def read_pod_record(pod: Pod, settings: SchedulerSettings) -> PodRecord:
    """What a pod holds on its host; nothing before it has one, after it ended, or if it was given nothing.

    A resource-status is taken as it is. Source: koordinator.md, "Recovery from pods".
    """
    if not pod.is_assigned:
        return PodRecord()
    findings = Report()
    status = read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS).reported_to(findings))
    if findings.findings:
        return PodRecord(unreadable=findings.findings)
    if status.is_empty:
        return PodRecord()
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC).softly())
    level, group = exclusive_level(spec, settings), exclusivity_group(pod, settings)
    return PodRecord(status.holding(level, raw_qos(pod), group))


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that is on a host, or was: what it requests of the host as a whole, and what to record for it.

    `phase` is as reported; a pod that has ended, or has no host yet, requests nothing. `qos` is the class its
    label names, `treated_as` the one that decides where it runs. `has_status`: it carries a resource-status.
    `warnings` has the admission rules it breaks, which does not make it run any less. `pools` are the NUMA
    nodes whose shared pools it was told. Of its `rules` and its `gang`, what cannot be read has no effect.
    """

    phase: str
    qos: QosClass
    treated_as: QosClass
    kubernetes_qos: KubernetesQos
    requests: Amounts
    record: PodRecord
    has_status: bool
    containers: tuple[str, ...]
    warnings: tuple[str, ...]
    rules: PodRules
    gang: Gang | None = None
    pools: tuple[int, ...] = ()


def import_running_pod(
    document: Mapping[str, Any],
    settings: SchedulerSettings,
    kubelet: KubeletPolicy,
    old: Mapping[str, Any] | None = None,
) -> RunningPod:
    """What a parsed Pod says about its place on a host with that kubelet; `old` is the Pod before an update.

    Raises ManifestError if its schema is broken or an update changes what must not change; an unreadable
    resource-status is part of the record. Source: koordinator.md, "Recovery from pods", "Admission rules".
    """
    report = Report()
    pod = read_pod(document, report)
    if old is not None:
        for violation in change_violations(pod, read_pod(old, Report()), settings.keeps_sub_priority):
            report.refuse(violation)
    report.raise_findings()
    for violation in admission_violations(pod, settings.profile):
        report.warn(violation)
    softly = pod.manifest.root.softly()
    rules, gang = read_pod_rules(softly, pod.namespace), read_gang(Manifest(softly), pod.namespace)
    return RunningPod(
        phase=pod.phase,
        qos=raw_qos(pod),
        treated_as=running_qos(pod, kubelet),
        kubernetes_qos=kubernetes_qos(pod),
        requests=request_amounts(occupied_amounts(pod)) if pod.is_assigned else {},
        record=read_pod_record(pod, settings),
        has_status=bool(pod.manifest.annotation(keys.RESOURCE_STATUS).value),
        containers=tuple(container.name for container in pod.all_containers),
        warnings=report.warnings,
        rules=rules,
        gang=gang,
        pools=read_told_pools(pod.manifest.annotation(keys.RESOURCE_STATUS)),
    )


def unknown_cpus_warning(holding: Holding, topology: CpuTopology) -> str | None:
    """A warning if a pod holds CPUs that its host does not have; they do not count.

    Source: koordinator.md, "Recovery from pods".
    """
    unknown = holding.cpus - topology.cpus
    return f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out" if unknown else None
