"""Rules between the members of a claim: how many of them may or must be in the same place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement.engine.domain.errors import BODY, RequestPlace

MOST_MEMBERS = 10_000
"""How many consumers a claim has at most."""


class RuleKind(StrEnum):
    """The kind of a rule."""

    AT_MOST = "at_most"
    TOGETHER = "together"
    SPREAD = "spread"


class Per(StrEnum):
    """The unit that counts as a place: hosts, aggregates of hosts, or providers inside of hosts."""

    HOST = "host"
    AGGREGATE = "aggregate"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class MemberRule:
    """One rule, by names.

    `at_most`: at most `count` members in a place; `together`: all in one place; `spread`: a place that gets a
    member has at most `max_skew` more than the emptiest place. `aggregates`: the places of `per` aggregate
    (empty: all aggregates). Places of `per` provider: from each provider that a member takes from, the
    nearest one upwards that offers `resource_class`, has `trait` or stands at `depth` (0 is the root).
    `members`: the names of the members that the rule is about, None for all. `consumers` and `groups` count
    beside these. `weight`: None if the rule must hold, else how much a breach counts against breaches of
    other rules. `place`: where the rule is in the request body.
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
    place: RequestPlace = BODY / "rules"

    @property
    def text(self) -> str:
        """The rule in words."""
        if self.kind is RuleKind.AT_MOST:
            return f"at most {self.count} per {self.per}"
        if self.kind is RuleKind.TOGETHER:
            return f"all on the same {self.per}"
        return f"spread over {len(self.aggregates)} aggregates, at most {self.max_skew} apart"
