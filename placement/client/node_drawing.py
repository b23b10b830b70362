"""A node of Kubernetes as text: the owners of its CPUs, its pools, pods and reservations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from placement.client.cells import cpu_list
from placement.client.terminal import can_write
from placement.engine.numa.cpus import format_cpu_list

ListedCpu = Mapping[str, Any]
"""A CPU in the description of a node."""
_CPUS_PER_LINE = 64


class _Sign(NamedTuple):
    """A sign for the CPUs of an owner, also where only ASCII can be written, and its meaning."""

    line: str
    ascii: str
    meaning: str


_OWNERS = {
    "pod": _Sign("█", "#", "a pod's own"),
    "several": _Sign("▓", "%", "several pods'"),
    "kubelet": _Sign("k", "k", "pinned by kubelet"),
    "reported": _Sign("?", "?", "of pods that only the node agent reports"),
    "reserved": _Sign("r", "r", "reserved"),
    "system": _Sign("s", "s", "for the system"),
    "others": _Sign("o", "o", "of consumers other than pods"),
    "reservation": _Sign("▒", "+", "kept by reservations, shared until their owners come"),
    "kubelet-reserved": _Sign("~", "~", "shared, reserved by kubelet"),
    "free": _Sign("·", ".", "shared, free to be claimed"),
}
_UNKNOWN = _Sign("!", "!", "of an unknown consumer")


def draw_cpu_owners(cpus: Sequence[ListedCpu], stdout: TextIO) -> Iterator[str]:
    """Yield a line or more for each NUMA node, siblings side by side, then the legend of what occurs."""
    plain = not can_write(stdout, (sign.line for sign in _OWNERS.values()))
    numa_nodes: dict[str, list[ListedCpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu["socket"], cpu["numa"], cpu["core"], cpu["cpu"])):
        numa_nodes.setdefault(f"socket {cpu['socket']}, numa-{cpu['numa']}", []).append(cpu)
    yield "CPUs"
    for name, its_cpus in numa_nodes.items():
        yield f"   {name}: {format_cpu_list(cpu['cpu'] for cpu in its_cpus)}"
        yield from _cores(its_cpus, plain=plain)
    yield from _legend({_owner(cpu) for cpu in cpus}, plain=plain)


def _cores(cpus: Sequence[ListedCpu], *, plain: bool) -> Iterator[str]:
    """Yield the lines of the cores of a NUMA node."""
    cores: dict[int, str] = {}
    for cpu in cpus:
        sign = _OWNERS.get(_owner(cpu), _UNKNOWN)
        cores[cpu["core"]] = cores.get(cpu["core"], "") + (sign.ascii if plain else sign.line)
    each = max(1, _CPUS_PER_LINE // max(map(len, cores.values())))
    for start in range(0, len(cores), each):
        yield f"     {' '.join(list(cores.values())[start : start + each])}"


def _legend(owners: set[str], *, plain: bool) -> Iterator[str]:
    for owner, sign in _OWNERS.items():
        if owner in owners:
            yield f"   {sign.ascii if plain else sign.line} {sign.meaning}"
    if owners - _OWNERS.keys():
        yield f"   {_UNKNOWN.line} {_UNKNOWN.meaning}"


def _owner(cpu: ListedCpu) -> str:
    return "several" if cpu.get("shared_with") else str(cpu["owner"])


def notes(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pools as they are and as reported, where pods run, reservations, and remarks on the node."""
    for heading, texts in (
        ("Pools", _pools(node)),
        ("Pods", _pods(node)),
        ("Reservations", _reservations(node)),
        ("Remarks", node["remarks"]),
    ):
        indented = [f"   {text}" for text in texts]
        yield from [heading, *indented] if indented else ()


def _pools(node: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("ls", "be"):
        reported = {pool["node"]: pool["cpuset"] for pool in node[f"reported_{kind}_pools"]}
        for pool in node[f"{kind}_pools"]:
            numa = pool["node"]
            shown = f", reported {reported[numa] or 'none'}" if numa in reported else ""
            yield f"{kind.upper()}, numa-{numa}: {pool['cpuset'] or 'none'}{shown}"


def _pods(node: Mapping[str, Any]) -> Iterator[str]:
    for pod in node["pods"]:
        name = f"{pod['namespace']}/{pod['name']}"
        first = {cpu["pod"] for cpu in node["cpus"] if name in cpu.get("shared_with", ())}
        own = ", its own" if pod["cpuset"] and pod["container_cpus"] else ""
        held = f"; of its {pod['cpuset']} some also belong to {', '.join(sorted(first))}" if first else ""
        yield f"{name}: {cpu_list(pod['container_cpus'])}{own}{held}"
    for members, label in (
        ("kubelet_pods", "pinned by kubelet"),
        ("reported_pods", "reported by the node agent only"),
    ):
        for pod in node[members]:
            yield f"{pod['namespace']}/{pod['name']}: {pod['cpuset'] or 'none'}, {label}"


def _reservations(node: Mapping[str, Any]) -> Iterator[str]:
    for kept in node.get("reservations", ()):
        left = kept["left"]
        parts = [f"CPUs {left['cpuset']}"] if left["cpuset"] else []
        parts += [f"{name} {amount}" for name, amount in left["resources"].items()]
        yield f"{kept['name']} keeps {', '.join(parts) or 'nothing any more'}"
