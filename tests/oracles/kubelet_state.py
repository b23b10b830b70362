"""Kubelet's CPU manager state file, and what the node agent reports of it."""

from __future__ import annotations

from collections.abc import Iterable

from placement.common.manifest import Field, ManifestReport
from placement.engine.numa.cpus import CpuSet
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.annotations import raw_qos, read_resource_status
from placement.pods.manifests.pod import Pod
from placement.pods.state.model import KubeletPod


def kubelet_allocs(state: str, pods: Iterable[Pod]) -> tuple[KubeletPod, ...]:
    """The pods whose CPUs kubelet manages according to the text of its state file, by uid.

    Left out are pods labelled LS or BE and those with a list of the scheduler. A container whose list does
    not parse contributes nothing. Raises ManifestError for a text that is no state file.
    """
    report = ManifestReport()
    known = {pod.uid: pod for pod in pods}
    pinned = _pinned_cpus(Field("cpu_manager_state", state or "(empty)", report).json())
    report.raise_findings()
    return tuple(
        _report_pod(uid, cpus, known.get(uid))
        for uid, cpus in sorted(pinned.items())
        if cpus and not (uid in known and _is_managed_elsewhere(known[uid]))
    )


def _pinned_cpus(state: Field) -> dict[str, CpuSet]:
    return {
        uid: frozenset[int]().union(*(_read_list(text) for text in containers.softly().members().values()))
        for uid, containers in state.member("entries").members().items()
    }


def _read_list(text: Field) -> CpuSet:
    return text.cpu_list() or frozenset()


def _report_pod(uid: str, cpus: CpuSet, pod: Pod | None) -> KubeletPod:
    return KubeletPod(pod.namespace if pod else "", pod.name if pod else "", uid, cpus)


def _is_managed_elsewhere(pod: Pod) -> bool:
    qos = raw_qos(pod)
    if qos.uses_ls_pools or qos.is_best_effort:
        return True
    status = pod.manifest.annotation(keys.RESOURCE_STATUS).reported_to(ManifestReport())
    return bool(read_resource_status(status).cpus)
