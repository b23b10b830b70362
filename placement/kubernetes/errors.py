"""What the dialect raises: a subtree of the service's errors.

BadRequest
 +-- ManifestError     a manifest breaks rules; carries every finding
 +-- QuantityError     a text is not a Kubernetes quantity
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.domain.errors import BadRequest

_SHOWN = 20


class ManifestError(BadRequest):
    """Manifests that break rules; `findings` are one-line sentences that each start with a field's path."""

    def __init__(self, findings: Sequence[str]) -> None:
        shown = list(findings[:_SHOWN])
        if len(findings) > _SHOWN:
            shown.append(f"and {len(findings) - _SHOWN} more")
        super().__init__("; ".join(shown))
        self.findings = tuple(findings)


class QuantityError(BadRequest, ValueError):
    """A value that is not a Kubernetes quantity."""
