"""PodGroups of all kinds, and pods that name them."""

from __future__ import annotations

import copy
from typing import Any

SIGS, X_K8S, VOLCANO, NATIVE = (
    "scheduling.sigs.k8s.io/v1alpha1",
    "scheduling.x-k8s.io/v1alpha1",
    "scheduling.volcano.sh/v1beta1",
    "scheduling.k8s.io/v1alpha2",
)
KINDS = (SIGS, X_K8S, VOLCANO, NATIVE)
CUSTOM = (SIGS, X_K8S, VOLCANO)
# How pods name them, one after another: a member of their metadata, the key, and the API version.
NAMES = (
    ("labels", "pod-group.scheduling.sigs.k8s.io", SIGS),
    ("labels", "pod-group.scheduling.sigs.k8s.io/name", SIGS),
    ("labels", "scheduling.x-k8s.io/pod-group", X_K8S),
    ("annotations", "scheduling.k8s.io/group-name", VOLCANO),
    ("annotations", "scheduling.volcano.sh/group-name", VOLCANO),
)


def pod_group(api_version: str, least: Any = 2, name: str = "web", **spec: Any) -> dict[str, Any]:
    """A PodGroup that asks for so many members."""
    policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": (policy if api_version == NATIVE else {"minMember": least}) | spec,
    }


def in_group(pod: dict[str, Any], api_version: str, name: Any = "web") -> dict[str, Any]:
    """The pod, naming that PodGroup."""
    found = copy.deepcopy(pod)
    if api_version == NATIVE:
        found["spec"]["schedulingGroup"] = {"podGroupName": name}
        return found
    member, key = next((member, key) for member, key, version in NAMES if version == api_version)
    found["metadata"].setdefault(member, {})[key] = name
    return found


def gang_name(api_version: str, name: str = "web") -> str:
    """The gang of that PodGroup in the namespace `default`."""
    api_group = "" if api_version == SIGS else f"{api_version.partition('/')[0]}/"
    return f"default/{api_group}{name}"
