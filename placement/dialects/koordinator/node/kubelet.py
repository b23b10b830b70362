"""What kubelet's own CPU and topology managers do on a host, as the node agent reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from placement.kubernetes.field import Field

STATIC = "static"
_POLICY_NAMES = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}
_SCOPE_NAMES = {"pod": "PodLevel", "container": "ContainerLevel"}


@dataclass(frozen=True, slots=True)
class KubeletPolicy:
    """Kubelet's CPU manager policy (`static`, `none`, empty = not reported) and its options."""

    policy: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """Whether kubelet pins CPUs itself."""
        return self.policy == STATIC

    def has_option(self, name: str) -> bool:
        """Whether the static policy runs with that option; other policies have none."""
        return self.is_static and self.options.get(name) == "true"


class Takeover(StrEnum):
    """How far Koordinator has taken the CPUs of a host over from kubelet's static CPU manager."""

    MIXED = "mixed"
    TAKEN_OVER = "taken over"
    BLIND = "blind"


def read_kubelet_policy(annotation: Field) -> KubeletPolicy:
    """The policy of a parsed cpu-manager-policy annotation; what cannot be read counts as not reported."""
    policy = annotation.member("policy").text() or ""
    if policy not in (STATIC, "none", ""):
        annotation.member("policy").warn(f"unknown CPU manager policy {policy!r}")
    options = annotation.member("options").members()
    texts = {name: option.text() for name, option in options.items()}
    return KubeletPolicy(policy, {name: text for name, text in texts.items() if text is not None})


def takeover_state(kubelet: KubeletPolicy, has_kubelet_pods: bool) -> Takeover:
    """Mixed while kubelet pins CPUs or may pin them, taken over when it does not, blind if not reported.

    Source: koordinator.md, "Taking a host over".
    """
    if has_kubelet_pods or kubelet.is_static:
        return Takeover.MIXED
    return Takeover.TAKEN_OVER if kubelet.policy == "none" else Takeover.BLIND


def reported_topology_policy(policy: str, scope: str) -> str:
    """The entry of `topologyPolicies` that the node agent writes for kubelet's topology manager.

    Anything but the three aligning policies with the scope `pod` or `container` is `None`.
    Source: koordinator.md, "topologyPolicies".
    """
    if policy not in _POLICY_NAMES or scope not in _SCOPE_NAMES:
        return "None"
    return _POLICY_NAMES[policy] + _SCOPE_NAMES[scope]
