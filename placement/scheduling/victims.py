"""Which pods have to go from a node so that a more important one fits there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

# Volumes that any node can give any pod.
_LOCAL_VOLUMES = frozenset(
    {"name", "configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
)
_NEVER = "Never"

Fits = Callable[[frozenset[str]], bool]
"""Whether the pod fits when these consumers are gone."""


def priority_of(pod: Mapping[str, Any]) -> int:
    """The priority in a Pod manifest; pods without one have 0."""
    priority = _mapping(pod.get("spec")).get("priority")
    return priority if isinstance(priority, int) and not isinstance(priority, bool) else 0


def may_preempt(pod: Mapping[str, Any]) -> bool:
    """Whether others may be evicted for a pod."""
    return _mapping(pod.get("spec")).get("preemptionPolicy") != _NEVER


def choose_victims(
    candidates: Sequence[str], proposed: Collection[str], fits: Fits, spares: Fits | None
) -> frozenset[str] | None:
    """Who of the candidates has to go, none of them needlessly; None if it does not help that all go.

    `candidates` come most important first and contain the `proposed` ones. If these are enough they are the
    answer. Otherwise they all go, and others in addition; but if `spares` is given they may stay as well, as
    long as that says that those who go instead free no less.
    """
    proposal = frozenset(proposed)
    if fits(proposal):
        return proposal
    everybody = frozenset(candidates)
    if not fits(everybody):
        return None
    others = [candidate for candidate in candidates if candidate not in proposal]
    if spares is None:
        return _without_needless(others, everybody, fits)
    mine = [candidate for candidate in candidates if candidate in proposal]

    def both(going: frozenset[str]) -> bool:
        return spares(going) and fits(going)

    ways = [
        _without_needless(last, _without_needless(first, everybody, both), both)
        for first, last in ((others, mine), (mine, others))
    ]
    return min(ways, key=len)


def _without_needless(group: Sequence[str], victims: frozenset[str], fits: Fits) -> frozenset[str]:
    """The victims without those of the group that need not go; halves of it are tried at once."""
    if not group:
        return victims
    fewer = victims.difference(group)
    if fits(fewer):
        return fewer
    if len(group) == 1:
        return victims
    middle = len(group) // 2
    return _without_needless(group[middle:], _without_needless(group[:middle], victims, fits), fits)


def only_resources_matter(pod: Mapping[str, Any], victims: Collection[Mapping[str, Any]]) -> bool:
    """Whether nothing but resources can be why these victims were proposed for the pod.

    Ports, volumes, and what pods have against each other are the scheduler's business.
    """
    spec = _mapping(pod.get("spec"))
    affinity = _mapping(spec.get("affinity"))
    containers = [*_mappings(spec.get("containers")), *_mappings(spec.get("initContainers"))]
    ports = [port for container in containers for port in _mappings(container.get("ports"))]
    volumes = _mappings(spec.get("volumes"))
    return not (
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
        or spec.get("hostNetwork")
        or any(port.get("hostPort") for port in ports)
        or any(volume.keys() - _LOCAL_VOLUMES for volume in volumes)
        or any(_keeps_others_off(victim) for victim in victims)
    )


def _keeps_others_off(pod: Mapping[str, Any]) -> bool:
    return bool(_mapping(_mapping(pod.get("spec")).get("affinity")).get("podAntiAffinity"))


def _mapping(value: object) -> Mapping[str, Any]:
    """Much of a manifest nobody has checked; what is no mapping says nothing."""
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(member) for member in value] if isinstance(value, list) else []
