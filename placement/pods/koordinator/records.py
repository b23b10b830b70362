"""A pod as it is recorded on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.common.gang import read_gang
from placement.common.manifest import Manifest, ManifestReport
from placement.engine.numa.amounts import Amounts, NumaAmounts
from placement.engine.numa.cpus import CpuTopology
from placement.engine.numa.cpuset import CpuSet, format_cpu_list
from placement.engine.numa.host import Holding
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.admission import admission_violations, change_violations
from placement.pods.koordinator.annotations import (
    kubernetes_qos,
    raw_qos,
    read_resource_spec,
    read_resource_status,
    read_told_pools,
    running_qos,
)
from placement.pods.koordinator.pod import exclusive_level, exclusivity_group
from placement.pods.manifests.affinity import (
    read_pod_rules,
)
from placement.pods.manifests.pod import Pod, occupied_amounts, read_pod, request_amounts
from placement.pods.model import (
    KubeletPolicy,
    PodRecord,
    RunningPod,
    SchedulerSettings,
)


def pool_class(treated_as: str, qos: str, holding: Holding) -> str:
    """Return the class to record for a pod's pool: empty if its label names it, or it has CPUs of its own."""
    return "" if holding.cpus or treated_as == qos else str(treated_as)


# Pods that run already: what they hold according to their annotations.


def read_pod_record(pod: Pod, settings: SchedulerSettings) -> PodRecord:
    """Return what a pod holds on its host: nothing before it has one, after it ended, or if it got nothing.

    A resource-status is taken as it is. Source: koordinator.md, "Recovery from pods".
    """
    if not pod.is_assigned:
        return PodRecord()
    findings = ManifestReport()
    status = read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS).reported_to(findings))
    if findings.findings:
        return PodRecord(unreadable=findings.findings)
    if status.is_empty:
        return PodRecord()
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC).softly())
    level, group = exclusive_level(spec, settings), exclusivity_group(pod, settings)
    return PodRecord(status.holding(level, raw_qos(pod), group))


def import_running_pod(
    document: Mapping[str, Any],
    settings: SchedulerSettings,
    kubelet: KubeletPolicy,
    old: Mapping[str, Any] | None = None,
) -> RunningPod:
    """Return what a parsed Pod says about its place on a host with that kubelet; `old` is its former version.

    Raises ManifestError if its schema is broken or an update changes what must not change; an unreadable
    resource-status is part of the record. Source: koordinator.md, "Recovery from pods", "Admission rules".
    """
    report = ManifestReport()
    pod = read_pod(document, report)
    if old is not None:
        for violation in change_violations(pod, read_pod(old, ManifestReport()), settings.keeps_sub_priority):
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
    """Return a warning if a pod holds CPUs that its host does not have; they do not count.

    Source: koordinator.md, "Recovery from pods".
    """
    unknown = holding.cpus - topology.cpus
    return f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out" if unknown else None


# Which part of a running pod's resource-status counts: no more than the pod may have.
#
# Users that may write pods may write that annotation, so it does not prove that CPUs were given.


def may_own_cpus(pod: RunningPod, host_binds_all: bool) -> bool:
    """Return whether a pod may have CPUs of its own: by its class, or because its host binds all pods."""
    return pod.qos.owns_cpus or host_binds_all


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The limits of a pod on its node: whether it may have CPUs of its own, and how much it requests.

    `taken` are CPUs that other pods have or no pod may have, `kept` is what the pod was recorded with before.
    It stays as long as the pod claims it: after a resize in place to less, a node agent still pins the pod to
    all CPUs that its annotation names.
    """

    owns_cpus: bool
    requests: Amounts
    topology: CpuTopology
    taken: CpuSet
    kept: Holding

    def limit(self, claimed: Holding) -> tuple[Holding, tuple[str, ...]]:
        """Return the part of a claim that counts, and warnings about the rest.

        If a claim has more CPUs than are requested or kept, only as many count: CPUs that exist and that no
        other pod has, first the ones it had before, then whole cores, then lowest numbers.
        """
        cpus, amounts = self._cpus(claimed.cpus), self._amounts(claimed.amounts)
        findings = []
        if cpus != claimed.cpus:
            beyond = format_cpu_list(claimed.cpus - cpus)
            why = f"requests {self._requested} CPUs" if self.owns_cpus else "gets no CPUs of its own"
            claims = f"resource-status claims CPUs {beyond}, but the pod {why}"
            findings.append(f"{claims}; no pod is charged for them")
        for resource in sorted({name for row in claimed.amounts.values() for name in row}):
            given, counted = _total(claimed.amounts, resource), _total(amounts, resource)
            if given != counted:
                findings.append(
                    f"resource-status claims more {resource} of NUMA nodes than the pod requests; "
                    "no pod is charged for the rest"
                )
        return replace(claimed, cpus=cpus, amounts=amounts), tuple(findings)

    @property
    def _requested(self) -> int:
        return self.requests.get("cpu", 0) // 1000

    def _cpus(self, claimed: CpuSet) -> CpuSet:
        if not self.owns_cpus:
            return frozenset()
        most = max(self._requested, len(claimed & self.kept.cpus))
        if len(claimed) <= most:
            return claimed
        rows = self.topology.by_cpu
        usable = (claimed & rows.keys()) - self.taken

        def rank(cpu: int) -> tuple[bool, bool, int, int]:
            core = self.topology.cores[rows[cpu].core_id]
            return cpu not in self.kept.cpus, not usable.issuperset(core), core[0], cpu

        return frozenset(sorted(usable, key=rank)[:most])

    def _amounts(self, claimed: NumaAmounts) -> NumaAmounts:
        """Count amounts of NUMA nodes in the order of their ids, up to what is requested or kept."""
        names = {name for row in claimed.values() for name in row}
        left = {name: max(self.requests.get(name, 0), _total(self.kept.amounts, name)) for name in names}
        counted: dict[int, dict[str, int]] = {}
        for numa, row in claimed.items():
            for resource, amount in row.items():
                share = min(amount, left.get(resource, 0))
                if share > 0:
                    left[resource] -= share
                    counted.setdefault(numa, {})[resource] = share
        return NumaAmounts(counted)


def _total(amounts: NumaAmounts, resource: str) -> int:
    return sum(row.get(resource, 0) for row in amounts.values())
