"""The limits of a plan: how many moves it may have, and of which consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.planning.simulation import PlacedConsumer, Relocation

USUAL_MOVES = 100
"""How many moves a plan may have where a request says nothing of them."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit on the moves of consumers that match all given fields; `label` is one of pods, KEY=VALUE."""

    moves: int
    project_id: str | None = None
    consumer_type: str | None = None
    label: str | None = None

    def covers(self, consumer: PlacedConsumer) -> bool:
        """Return whether the limit applies to a consumer."""
        if self.project_id not in (None, consumer.project_id):
            return False
        if self.consumer_type not in (None, consumer.consumer_type):
            return False
        if self.label is None:
            return True
        key, _, value = self.label.partition("=")
        return consumer.labels.get(key) == value


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits of a plan. `never`: uuids of consumers that stay; `clusters`: only their hosts take part."""

    moves: int
    never: frozenset[str] = frozenset()
    clusters: tuple[str, ...] | None = None
    at_most: Sequence[AtMost] = ()

    def why_not(self, consumer: PlacedConsumer, relocations: Sequence[Relocation]) -> str:
        """Return why a consumer may not be moved after these moves; empty if it may."""
        if consumer.fixed:
            return consumer.fixed
        if consumer.uuid in self.never:
            return "is never moved"
        for bound in self.at_most:
            if not bound.covers(consumer):
                continue
            if sum(bound.covers(each.consumer) for each in relocations) >= bound.moves:
                return f"at most {bound.moves} moves of its kind are allowed"
        return ""
