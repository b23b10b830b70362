"""A resize in place: what of a pod's status tells that its containers have other amounts than they request.

Source: KEP-1287, "In-place Update of Pod Resources".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_STATUSES = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))
_AMOUNTS = ("resources", "allocatedResources")


def resize_status(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a pod's status that tell of a resize; none where all is as requested.

    Kubelet writes the amounts of every container. Only those that differ from the spec are kept: a pod that
    is not resized is neither reported nor stored with them.
    """
    spec, status = _mapping(manifest.get("spec")), _mapping(manifest.get("status"))
    if not status:
        return {}
    found: dict[str, Any] = {}
    for containers, statuses in _STATUSES:
        requests = {str(each.get("name")): _requests(each) for each in _mappings(spec.get(containers))}
        differing = [
            {name: each[name] for name in ("name", *_AMOUNTS) if name in each}
            for each in _mappings(status.get(statuses))
            if _differs(each, requests.get(str(each.get("name")), {}))
        ]
        if differing:
            found[statuses] = differing
    if _differs(status, _requests(spec)):
        found |= {name: status[name] for name in _AMOUNTS if name in status}
    if found and resize_is_infeasible(manifest):
        found["conditions"] = list(_infeasible(status))
    return found


def resize_is_infeasible(manifest: Mapping[str, Any]) -> bool:
    """Return whether kubelet found that the node can never meet the new requests."""
    return any(True for _ in _infeasible(_mapping(manifest.get("status"))))


def _infeasible(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for each in _mappings(status.get("conditions")):
        if (each.get("type"), each.get("reason")) == ("PodResizePending", "Infeasible"):
            yield {"type": each["type"], "reason": each["reason"]}


def _differs(status: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    in_effect = _requests(status)
    admitted = _mapping(status.get("allocatedResources"))
    return bool(in_effect) and (in_effect != requests or (bool(admitted) and admitted != requests))


def _requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(container.get("resources")).get("requests"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())
