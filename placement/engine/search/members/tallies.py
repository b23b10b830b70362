"""One rule, and where members are: which places may get one more, and the cost of breaking a soft rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from placement.engine.domain.member_rules import RuleKind
from placement.engine.forest.arrays import Amounts, Floats, Mask, Rows
from placement.engine.search.members.places import NOWHERE, Places


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """A rule by ids: `limit` is the count or the skew of MemberRule, `weight` the cost of breaking it.

    `counted`: the places of each consumer that counts and is there already, `held`: the places of the members
    among them. `on_hosts`: hosts decide about the places, not providers inside of them.
    """

    kind: RuleKind
    places: Places
    limit: int
    counted: Rows
    on_hosts: bool
    weight: float | None = None
    held: Rows = field(default_factory=lambda: np.empty((0, 1), np.intp))

    @property
    def is_hard(self) -> bool:
        """Return whether the rule must hold."""
        return self.weight is None


class Tally:
    """A tally of the consumers that count in each place of a rule."""

    def __init__(self, rule: ResolvedRule) -> None:
        self.rule = rule
        # The last entry stands for NOWHERE and stays 0.
        self.counts: Amounts = np.zeros(rule.places.count + 1, np.int64)
        self.total = 0
        self.frame: int | None = None
        """The place where all have to be, of a rule that all are together."""
        for places in rule.counted.tolist():
            self.add(places)
        self._first = self.counts.copy(), self.total

    def add(self, places: Sequence[int], sign: int = 1) -> None:
        """Count one more consumer with these places, or one less."""
        for place in places:
            if place != NOWHERE:
                self.counts[place] += sign
        self.total += sign

    def reset(self) -> None:
        """Forget all consumers but the ones that were there first."""
        counts, self.total = self._first
        self.counts = counts.copy()

    def allowed(self, places: Rows) -> Mask:
        """Return which candidates may be next without breaking it, by their places."""
        rule = self.rule
        if rule.kind is RuleKind.AT_MOST:
            return _all(self.counts < rule.limit, places)
        if rule.kind is RuleKind.SPREAD:
            fine = _all(self.counts < self._fewest + rule.limit, places)
            return cast(Mask, (places != NOWHERE).any(axis=1) & fine)
        met = places != NOWHERE if self.frame is None else places == self.frame
        return cast(Mask, met.any(axis=1))

    def admits(self, places: Sequence[int]) -> bool:
        """Return whether one candidate may be next; of a spread only whether it is in any of the places."""
        if self.rule.kind is RuleKind.AT_MOST:
            return all(place == NOWHERE or self.counts[place] < self.rule.limit for place in places)
        if self.frame is not None:
            return self.frame in places
        return any(place != NOWHERE for place in places)

    def penalties(self, places: Rows) -> Floats:
        """Return the penalty of each candidate for breaking a soft rule."""
        rule, counts = self.rule, self.counts[places]
        somewhere = places != NOWHERE
        if rule.kind is RuleKind.AT_MOST:
            over = np.where(somewhere, counts + 1 - rule.limit, 0).max(axis=1)
        elif rule.kind is RuleKind.TOGETHER:
            over = self.total - counts.max(axis=1)
        else:
            least = self._fewest + rule.limit
            outside = int(self.counts[:-1].max(initial=0)) + 1 - least
            over = np.where(somewhere, counts + 1 - least, 0).max(axis=1)
            over = np.where(somewhere.any(axis=1), over, max(1, outside))
        penalties: Floats = (rule.weight or 0.0) * np.maximum(over, 0)
        return penalties

    def excess(self, members: Rows) -> int:
        """Return by how many the rule is broken where members are, by their places; 0 if it holds."""
        rule = self.rule
        used = np.unique(members[members != NOWHERE])
        nowhere = int((members == NOWHERE).all(axis=1).sum())
        if rule.kind is RuleKind.AT_MOST:
            return int(np.maximum(self.counts[used] - rule.limit, 0).sum())
        if rule.kind is RuleKind.TOGETHER:
            if rule.is_hard:
                # Other consumers may be in several places; members are with some of them.
                return len(members) - int(np.bincount(members[members != NOWHERE]).max(initial=0))
            return self.total - int(self.counts[used].max(initial=0)) if len(members) else 0
        return int(np.maximum(self.counts[used] - self._fewest - rule.limit, 0).sum()) + nowhere

    @property
    def _fewest(self) -> int:
        return int(self.counts[:-1].min(initial=2**40)) if self.rule.places.count else 0


def _all(fine: Mask, places: Rows) -> Mask:
    """Return which candidates are only in places that are fine; NOWHERE is fine."""
    fine[-1] = True
    return cast(Mask, fine[places].all(axis=1))
