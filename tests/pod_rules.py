"""Pods with rules about other pods, for tests: short forms and the manifests they stand for."""

from __future__ import annotations

from typing import Any

from tests.kubernetes import pod_manifest

REASONS = {
    "near": "node(s) didn't match pod affinity rules",
    "apart": "node(s) didn't match pod anti-affinity rules",
    "kept": "node(s) didn't satisfy existing pods anti-affinity rules",
    "uneven": "node(s) didn't match pod topology spread constraints",
    "unlabelled": "node(s) didn't match pod topology spread constraints (missing required label)",
    "selected": "node(s) didn't match Pod's node affinity/selector",
    "tainted": "node(s) had untolerated taint {closed: }",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def ruled_pod(name: str, said: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The manifest of a small pod that says this about others; `given` as `pod_manifest` takes it."""
    affinity = {
        side: {
            _REQUIRED: [_term(*term) for term in said.get(required, [])],
            _PREFERRED: [
                {"weight": weight, "podAffinityTerm": _term(*term)} for weight, *term in said.get(liked, [])
            ],
        }
        for side, required, liked in (
            ("podAffinity", "near", "rather_near"),
            ("podAntiAffinity", "apart", "rather_apart"),
        )
    }
    spread = [
        _constraint(when, *each)
        for when, member in (("DoNotSchedule", "spread"), ("ScheduleAnyway", "rather_spread"))
        for each in said.get(member, [])
    ]
    members: dict[str, Any] = {"affinity": affinity, "topologySpreadConstraints": spread}
    if "nodeSelector" in said:
        members["nodeSelector"] = said["nodeSelector"]
    asked = {"cpu": "100m", "memory": "10Mi", "qos": "LS", "labels": said.get("labels", {}), **given}
    pod = pod_manifest(**asked, **members)
    pod["metadata"] |= {"name": name, "namespace": said.get("namespace", "default")}
    return pod


def _term(key: str, labels: dict[str, str] | None, others: dict[str, Any] | None = None) -> dict[str, Any]:
    selector = None if labels is None else {"matchLabels": labels}
    return {"topologyKey": key, "labelSelector": selector, **(others or {})}


def _constraint(
    when: str, key: str, skew: int, labels: dict[str, str], others: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": labels},
        **(others or {}),
    }
