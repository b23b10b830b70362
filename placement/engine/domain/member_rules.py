"""Rules between the members of a claim: how many of them may be in the same place, or have to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RuleKind(StrEnum):
    """What a rule asks for."""

    AT_MOST = "at_most"
    TOGETHER = "together"
    SPREAD = "spread"


class Per(StrEnum):
    """What counts as a place: hosts, aggregates of hosts, or providers inside of hosts."""

    HOST = "host"
    AGGREGATE = "aggregate"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class MemberRule:
    """One rule, by names.

    `at_most`: at most `count` in a place; `together`: all in one place; `spread`: every place that gets one
    has at most `max_skew` more than the one that has the fewest. `aggregates`: the places of `per` aggregate
    (empty: all aggregates). Places of `per` provider are the nearest ones, from what a member takes something
    of upwards, that offer `resource_class`, have `trait` or stand at `depth` (0 is the root). `members`: the
    names of those whom it concerns, None for all. `consumers` and `groups`: who counts beside them. `weight`:
    None if the rule must hold, else how much a breach of it counts against those of others. `place`: where it
    is in what the caller sent.
    """

    kind: RuleKind
    per: Per
    count: int = 1
    max_skew: int = 1
    aggregates: tuple[str, ...] = ()
    resource_class: str | None = None
    trait: str | None = None
    depth: int | None = None
    members: frozenset[str] | None = None
    consumers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    weight: float | None = None
    place: str = "rules"

    @property
    def text(self) -> str:
        """The rule in words."""
        if self.kind is RuleKind.AT_MOST:
            return f"at most {self.count} per {self.per}"
        if self.kind is RuleKind.TOGETHER:
            return f"all on the same {self.per}"
        return f"spread over {len(self.aggregates)} aggregates, at most {self.max_skew} apart"
