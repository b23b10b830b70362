"""Pods whose CPUs kubelet pinned itself: the pod-cpu-allocs annotation."""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.koordinator.node.cpu_topology import read_known_cpus
from placement.dialects.koordinator.profile import Profile
from placement.kubernetes.field import Field
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet

_SPELLED_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class KubeletPod:
    """A pod whose logical CPUs kubelet manages; only CPUs of the host's topology, at least one."""

    namespace: str
    name: str
    uid: str
    cpus: CpuSet


def read_kubelet_pods(allocs: Field, topology: CpuTopology, profile: Profile) -> tuple[KubeletPod, ...]:
    """The kubelet-managed entries of a parsed pod-cpu-allocs annotation that name a uid and known CPUs.

    Unusable entries are left out with a warning. The spellings of the design documents, `cpu` for `cpuset`
    and `"true"` for true, are taken with a warning under `design` and refused under `koord-scheduler`.
    Source: koordinator.md, "Unallocatable CPUs".
    """
    pods: dict[str, KubeletPod] = {}
    for entry in allocs.elements():
        cpus, managed = _cpuset(entry, profile), _is_managed(entry, profile)
        pod = _read_pod(entry, cpus, topology) if managed else None
        if pod is None:
            continue
        if pod.uid in pods:
            entry.member("uid").warn(f"{pod.uid!r} is listed twice; its CPUs are joined")
            pod = KubeletPod(pod.namespace, pod.name, pod.uid, pod.cpus | pods[pod.uid].cpus)
        pods[pod.uid] = pod
    return tuple(pods.values())


def _read_pod(entry: Field, cpuset: Field, topology: CpuTopology) -> KubeletPod | None:
    uid = entry.member("uid").text()
    cpus = read_known_cpus(cpuset, topology)
    if not uid:
        entry.member("uid").warn("is missing; the entry is ignored")
    elif not cpus:
        cpuset.warn("names no CPU of the host; the entry is ignored")
    else:
        return KubeletPod(_text(entry, "namespace"), _text(entry, "name"), uid, cpus)
    return None


def _cpuset(entry: Field, profile: Profile) -> Field:
    seed_spelling = entry.member("cpu")
    if entry.member("cpuset").value is not None or seed_spelling.value is None:
        return entry.member("cpuset")
    if profile is Profile.KOORD_SCHEDULER:
        seed_spelling.refuse("the field is called cpuset")
    else:
        seed_spelling.warn("read as cpuset, the name of the field")
    return seed_spelling


def _is_managed(entry: Field, profile: Profile) -> bool:
    flag = entry.member("managedByKubelet")
    if not isinstance(flag.value, str) or flag.value not in _SPELLED_FLAGS:
        return flag.flag(default=False) is True
    if profile is Profile.KOORD_SCHEDULER:
        flag.refuse(f'must be the boolean {flag.value}, not the text "{flag.value}"')
    else:
        flag.warn(f'the text "{flag.value}" is read as the boolean {flag.value}')
    return _SPELLED_FLAGS[flag.value]


def _text(entry: Field, key: str) -> str:
    return entry.member(key).text() or ""
