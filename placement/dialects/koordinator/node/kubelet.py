"""What kubelet's own CPU and topology managers do on a host, as the node agent reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from placement.kubernetes.manifest import Field

STATIC = "static"


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
    """Whether Koordinator has taken the CPUs of a host over from kubelet's static CPU manager."""

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
