"""What bounds a plan: how many moves, whom they may concern, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.services.planning.moves.board import Consumer, Relocation


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most so many moves of those who meet all that is given; `label` is one of pods, KEY=VALUE."""

    moves: int
    project_id: str | None = None
    consumer_type: str | None = None
    label: str | None = None

    def means(self, consumer: Consumer) -> bool:
        """Whether a consumer is one of those."""
        if self.project_id not in (None, consumer.project_id):
            return False
        if self.consumer_type not in (None, consumer.consumer_type):
            return False
        if self.label is None:
            return True
        key, _, value = self.label.partition("=")
        return consumer.labels.get(key) == value


@dataclass(frozen=True, slots=True)
class Limits:
    """`never` are uuids of consumers that stay where they are; `clusters`: only hosts of these take part."""

    moves: int
    never: frozenset[str] = frozenset()
    clusters: tuple[str, ...] | None = None
    at_most: Sequence[AtMost] = ()

    def why_not(self, consumer: Consumer, moved: Sequence[Relocation]) -> str:
        """Why a consumer may not be moved after these moves; empty if it may."""
        if consumer.fixed:
            return consumer.fixed
        if consumer.uuid in self.never:
            return "is among those that are never moved"
        for bound in self.at_most:
            if bound.means(consumer):
                made = sum(bound.means(each.consumer) for each in moved)
                if made >= bound.moves:
                    return f"at most {bound.moves} moves of its kind are allowed"
        return ""

    def tags(self, consumer: Consumer) -> Mapping[int, bool]:
        """Equal for consumers to whom the same bounds apply."""
        return {at: bound.means(consumer) for at, bound in enumerate(self.at_most)}
