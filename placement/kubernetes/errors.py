"""What readers of manifests raise, a subtree of the service's errors, and how they quote a value.

BadRequest
 +-- ManifestError     a manifest breaks rules; carries every finding
 +-- QuantityError     a text is not a Kubernetes quantity
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.domain.errors import BadRequest

_SHOWN = 20
_LONGEST_VALUE = 60


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


def shown(value: object) -> str:
    """A short printable form of a parsed value: scalars as written in Python, containers by their kind."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a very long number"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
