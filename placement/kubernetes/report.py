"""What is collected while manifests are read: findings that refuse them, warnings that do not."""

from __future__ import annotations

from placement.kubernetes.errors import ManifestError

_LONGEST_VALUE = 60


class Report:
    """Findings and warnings in the order they were met, each once."""

    def __init__(self) -> None:
        self._findings: dict[str, None] = {}
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning, one line each."""
        return tuple(self._warnings)

    @property
    def findings(self) -> tuple[str, ...]:
        """Every reason to refuse the manifests, one line each."""
        return tuple(self._findings)

    def refuse(self, sentence: str) -> None:
        """Record a reason to refuse the manifests."""
        self._findings[_one_line(sentence)] = None

    def warn(self, sentence: str) -> None:
        """Record something the operator should know."""
        self._warnings[_one_line(sentence)] = None

    def raise_findings(self) -> None:
        """Raise one ManifestError with every finding, if there is any."""
        if self._findings:
            raise ManifestError(tuple(self._findings))


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


def _one_line(sentence: str) -> str:
    # Keys of a manifest become part of paths and may hold anything, line ends and lone surrogates included.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)
