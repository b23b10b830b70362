"""Taints of nodes and tolerations of pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from placement.kubernetes.field import Field

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REFUSING = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint: pods that do not tolerate it are kept off the node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """The taint as `kubectl taint` writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Toleration(NamedTuple):
    """Which taints a pod does not mind; no key tolerates every key, no effect every effect."""

    key: str
    exists: bool
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Whether the taint is tolerated (Kubernetes: taints and tolerations)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or self.value == taint.value


def read_taints(taints: Field) -> tuple[Taint, ...]:
    """The taints of `Node.spec.taints`."""
    return tuple(
        Taint(_text(entry, "key"), _text(entry, "value"), _text(entry, "effect"))
        for entry in taints.elements()
    )


def read_tolerations(tolerations: Field) -> tuple[Toleration, ...]:
    """The tolerations of `Pod.spec.tolerations`; unknown operators and effects are reported."""
    return tuple(_read_toleration(entry) for entry in tolerations.elements())


def _read_toleration(entry: Field) -> Toleration:
    operator, key, effect = (_text(entry, name) for name in ("operator", "key", "effect"))
    if operator not in ("", "Equal", "Exists"):
        entry.member("operator").refuse(f"must be Equal or Exists, not {operator!r}")
    elif not key and operator != "Exists":
        entry.member("operator").refuse("must be Exists when the key is empty")
    if effect and effect not in _EFFECTS:
        entry.member("effect").refuse(f"{effect!r} is none of {', '.join(_EFFECTS)}")
    return Toleration(key, operator == "Exists", _text(entry, "value"), effect)


def _text(entry: Field, key: str) -> str:
    return entry.member(key).text() or ""


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Iterator[Taint]:
    """The taints that keep a pod off a node; PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in _REFUSING and not any(toleration.covers(taint) for toleration in tolerations):
            yield taint
