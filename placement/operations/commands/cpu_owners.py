"""Whose each logical CPU of a node is, as text: a character for each CPU, cores apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from placement.numa.cpuset import format_cpu_list

_CPUS_PER_LINE = 64

Cpu = Mapping[str, Any]


class _Sign(NamedTuple):
    """How CPUs of an owner are drawn, also where only ASCII can be written, and what that means."""

    line: str
    ascii: str
    meaning: str


_OWNERS = {
    "pod": _Sign("█", "#", "a pod's own"),
    "several": _Sign("▓", "%", "several pods'"),
    "kubelet": _Sign("k", "k", "pinned by kubelet"),
    "reported": _Sign("?", "?", "of pods that are known by report only"),
    "reserved": _Sign("r", "r", "reserved"),
    "system": _Sign("s", "s", "for the system"),
    "others": _Sign("o", "o", "of consumers that are no pods"),
    "reservation": _Sign("▒", "+", "kept by reservations, shared until their owners come"),
    "kubelet-reserved": _Sign("~", "~", "shared, reserved by kubelet"),
    "free": _Sign("·", ".", "shared, free to be claimed"),
}
_UNKNOWN = _Sign("!", "!", "of somebody unknown")


def draw(cpus: Sequence[Cpu], stdout: TextIO) -> Iterator[str]:
    """A line or more for each NUMA node, then the legend of what occurs."""
    plain = _only_ascii(stdout)
    yield "CPUs"
    for place, mine in _places(cpus).items():
        yield f"   {place}: {format_cpu_list(cpu['cpu'] for cpu in mine)}"
        yield from (f"     {line}" for line in _lines(mine, plain=plain))
    occurring = {_owner(cpu) for cpu in cpus}
    for owner, sign in _OWNERS.items():
        if owner in occurring:
            yield f"   {sign.ascii if plain else sign.line} {sign.meaning}"
    if occurring - _OWNERS.keys():
        yield f"   {_UNKNOWN.line} {_UNKNOWN.meaning}"


def notes(node: Mapping[str, Any]) -> Iterator[str]:
    """The pools as they are and as they are reported, where each pod runs, and the remarks about the node."""
    for heading, lines in (
        ("Pools", _pools(node)),
        ("Pods", _pods(node)),
        ("Reservations", _reservations(node)),
        ("Remarks", node["remarks"]),
    ):
        indented = [f"   {line}" for line in lines]
        yield from [heading, *indented] if indented else ()


def _pools(node: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("ls", "be"):
        reported = {pool["node"]: pool["cpuset"] for pool in node[f"reported_{kind}_pools"]}
        for pool in node[f"{kind}_pools"]:
            numa = pool["node"]
            told = f", reported {_listed(reported[numa])}" if numa in reported else ""
            yield f"{kind.upper()}, numa-{numa}: {_listed(pool['cpuset'])}{told}"


def _pods(node: Mapping[str, Any]) -> Iterator[str]:
    for pod in node["pods"]:
        cpus = pod["container_cpus"]
        own = ", its own" if pod["cpuset"] else ""
        yield f"{pod['namespace']}/{pod['name']}: {'unknown' if cpus is None else _listed(cpus)}{own}"
    for members, whose in (("kubelet_pods", "pinned by kubelet"), ("reported_pods", "known by report only")):
        for pod in node[members]:
            yield f"{pod['namespace']}/{pod['name']}: {_listed(pod['cpuset'])}, {whose}"


def _reservations(node: Mapping[str, Any]) -> Iterator[str]:
    for kept in node.get("reservations", ()):
        yield f"{kept['name']} keeps {_kept(kept['left'])}"


def _listed(cpus: str) -> str:
    return cpus or "none"


def _kept(left: Mapping[str, Any]) -> str:
    """What a reservation has left, in words."""
    parts = [f"{name} {amount}" for name, amount in left["resources"].items()]
    if left["cpuset"]:
        parts.insert(0, f"CPUs {left['cpuset']}")
    return ", ".join(parts) or "nothing any more"


def _only_ascii(stdout: TextIO) -> bool:
    try:
        "".join(sign.line for sign in _OWNERS.values()).encode(stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False


def _places(cpus: Sequence[Cpu]) -> dict[str, list[Cpu]]:
    """The CPUs of each NUMA node, siblings side by side."""
    found: dict[str, list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu["socket"], cpu["numa"], cpu["core"], cpu["cpu"])):
        found.setdefault(f"socket {cpu['socket']}, numa-{cpu['numa']}", []).append(cpu)
    return found


def _lines(cpus: Sequence[Cpu], *, plain: bool) -> Iterator[str]:
    cores: dict[int, str] = {}
    for cpu in cpus:
        sign = _OWNERS.get(_owner(cpu), _UNKNOWN)
        cores[cpu["core"]] = cores.get(cpu["core"], "") + (sign.ascii if plain else sign.line)
    drawn = list(cores.values())
    each = max(1, _CPUS_PER_LINE // max(map(len, drawn)))
    for start in range(0, len(drawn), each):
        yield " ".join(drawn[start : start + each])


def _owner(cpu: Cpu) -> str:
    return "several" if cpu.get("shared_with") else str(cpu["owner"])
