"""A Kubernetes pod as one value: what it asks for, and what is remarkable about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.admission import admission_violations
from placement.dialects.koordinator.pod.pod_request import PodRequest, interpret_pod
from placement.dialects.koordinator.pod.pod_warnings import warn_of_pod
from placement.dialects.koordinator.pod.resource_spec import ResourceSpec, read_resource_spec
from placement.dialects.koordinator.qos import (
    KubernetesQos,
    QosClass,
    kubernetes_qos,
    raw_qos,
)
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.node_selection import NodeSelection, read_node_selection
from placement.kubernetes.pod import Pod, read_pod
from placement.kubernetes.report import Report
from placement.numa.amounts import Amounts
from placement.numa.refusal import Refused


@dataclass(frozen=True, slots=True)
class PodImport:
    """All that a manifest says about a pod that looks for a place.

    `key` tells it from all other pods of its cluster; `request` is None if it requests nothing at all; `qos`
    is the class its label names. `spec` is its resource-spec as written, `containers` their names.
    """

    key: str
    namespace: str
    name: str
    uid: str
    qos: QosClass
    kubernetes_qos: KubernetesQos
    request: PodRequest | None
    spec: ResourceSpec
    selection: NodeSelection
    containers: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def amounts(self) -> Amounts:
        """What it requests of its host as a whole."""
        return {} if self.request is None else self.request.amounts


def import_pod(
    document: Mapping[str, Any], settings: SchedulerSettings, old: Mapping[str, Any] | None = None
) -> PodImport:
    """What a parsed Pod asks of hosts under the settings of its cluster; `old` is the Pod before an update.

    Raises ManifestError with everything that is wrong: broken schema, contradictions, admission rules.
    Source: Koordinator semantics, who is bound and admission rules.
    """
    report = Report()
    pod = read_pod(document, report)
    before = None if old is None else read_pod(old, Report())
    for violation in admission_violations(pod, settings.profile, before, settings.keeps_sub_priority):
        report.refuse(violation)
    request = _interpret(pod, settings)
    selection = read_node_selection(pod.manifest.root.member("spec"))
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    report.raise_findings()
    warn_of_pod(pod, spec, request, settings)
    return PodImport(
        key=pod.key,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        qos=raw_qos(pod),
        kubernetes_qos=kubernetes_qos(pod),
        request=request,
        spec=spec,
        selection=selection,
        containers=tuple(container.name for container in pod.all_containers),
        warnings=report.warnings,
    )


def _interpret(pod: Pod, settings: SchedulerSettings) -> PodRequest | None:
    try:
        return interpret_pod(pod, settings)
    except Refused:
        return None  # admission has a finding about every pod that no host can take
