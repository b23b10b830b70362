"""What a pod says about the pods that are placed: whom it wants near, whom apart, and how to be spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.kubernetes.manifest import Field
from placement.kubernetes.pod_affinity import (
    NO_AFFINITY,
    Bearer,
    PodAffinity,
    pod_labels,
    read_pod_affinity,
    required_terms,
)
from placement.kubernetes.topology_spread import (
    SpreadConstraint,
    may_be_required,
    read_spread_constraints,
)


@dataclass(frozen=True, slots=True)
class PodRules:
    """The namespace and labels by which others choose a pod, its affinity, and how it is to be spread."""

    bearer: Bearer
    affinity: PodAffinity = NO_AFFINITY
    spread: tuple[SpreadConstraint, ...] = ()

    def __bool__(self) -> bool:
        """Whether the pod itself says anything about other pods."""
        return bool(self.affinity or self.spread)

    @property
    def refuse(self) -> bool:
        """Whether what other pods are placed may keep this one off nodes by its own words."""
        required = self.affinity.near or self.affinity.apart
        return bool(required) or any(each.is_required for each in self.spread)


def read_pod_rules(pod: Field, namespace: str) -> PodRules:
    """The rules of a pod in this namespace; whatever breaks the schema is reported."""
    bearer = (namespace, pod_labels(pod.member("metadata")))
    spec = pod.member("spec")
    return PodRules(
        bearer,
        read_pod_affinity(spec.member("affinity"), bearer),
        read_spread_constraints(spec.member("topologySpreadConstraints"), bearer),
    )


def may_require(pod: Mapping[str, Any]) -> bool:
    """Whether a pod, whose manifest nobody has checked, may require anything of other pods."""
    spec = _spec(pod)
    constraints = spec.get("topologySpreadConstraints")
    return (
        required_terms(spec, "podAffinity")
        or required_terms(spec, "podAntiAffinity")
        or may_be_required(constraints)
    )


def may_keep_off(pod: Mapping[str, Any]) -> bool:
    """Whether a pod, whose manifest nobody has checked, may keep other pods off nodes."""
    return required_terms(_spec(pod), "podAntiAffinity")


def _spec(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = pod.get("spec")
    return spec if isinstance(spec, Mapping) else {}
