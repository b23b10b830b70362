"""What a pod wants of its CPUs: the resource-spec annotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.kubernetes.field import Field

DEFAULT = "Default"
CONSTRAINED_BURST = "ConstrainedBurst"

_REQUIRED = "requiredCPUBindPolicy"
_PREFERRED = "preferredCPUBindPolicy"
_EXCLUSIVE = "preferredCPUExclusivePolicy"


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """The policies as written, also unknown ones, empty where absent; `document` is the whole annotation."""

    required_bind: str = ""
    preferred_bind: str = ""
    exclusive: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)

    def effective_bind(self, default: str) -> tuple[str, str]:
        """The required and the preferred bind policy, where `Default` is replaced.

        No preference is the default, too; no requirement stays none. Source: koordinator.md, "Who is bound".
        """
        required = default if self.required_bind == DEFAULT else self.required_bind
        preferred = default if self.preferred_bind in ("", DEFAULT) else self.preferred_bind
        return required, preferred


def read_resource_spec(annotation: Field) -> ResourceSpec:
    """The spec of a resource-spec annotation, absent or not; what does not parse is reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return ResourceSpec(
        required_bind=parsed.member(_REQUIRED).text() or "",
        preferred_bind=parsed.member(_PREFERRED).text() or "",
        exclusive=parsed.member(_EXCLUSIVE).text() or "",
        document=dict(parsed.mapping()),
    )


def completed_spec(spec: ResourceSpec, bind: str, strict: bool) -> Mapping[str, Any]:
    """The annotation after a pod was bound under a policy, with the policies that were only implied.

    Nothing changes if no policy applied. Source: koordinator.md, "What is written".
    """
    completed = dict(spec.document)
    if bind and strict and spec.required_bind in ("", DEFAULT):
        completed[_REQUIRED] = bind
    if bind and spec.preferred_bind == DEFAULT:
        completed[_PREFERRED] = bind
    if bind and not completed.get(_REQUIRED) and not completed.get(_PREFERRED):
        completed[_PREFERRED] = bind
    return completed
