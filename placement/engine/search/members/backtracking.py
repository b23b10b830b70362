"""All ways to place a number of members, where taking the best one after another fell short."""

from __future__ import annotations

from collections.abc import Sequence

from placement.engine.domain.member_rules import RuleKind
from placement.engine.search.budget import Budget
from placement.engine.search.members.state import (
    MemberKind,
    PlacementState,
)


class Backtracking:
    """A depth-first search: members of a kind get candidates in ascending order, as they are alike."""

    def __init__(
        self, state: PlacementState, members: Sequence[MemberKind], steps: int, budget: Budget
    ) -> None:
        self._state = state
        self._members = sorted(members, key=lambda kind: len(state.first_table(kind).hosts))
        kinds = list(dict.fromkeys(self._members))
        # Members of a kind side by side.
        self._members.sort(key=kinds.index)
        self.steps_left = steps
        self._budget = budget

    @property
    def is_complete(self) -> bool:
        """Return whether all ways were tried, if none was found."""
        tables = [self._state.first_table(kind) for kind in set(self._members)]
        return self.steps_left > 0 and not any(table.is_cut or table.answer.splits for table in tables)

    def run(self, count: int) -> bool:
        """Place `count` members on a cleared state; return whether that was possible. Raises SearchEnded."""
        return self._go_on(0, 0, len(self._members) - count)

    def _go_on(self, member: int, first: int, spare: int) -> bool:
        state = self._state
        if member == len(self._members):
            return self._spreads_hold()
        kind = self._members[member]
        following = member + 1 < len(self._members) and self._members[member + 1] is kind
        table, hard = state.first_table(kind), state.hard(kind)
        for at in range(first, len(table.hosts)):
            self.steps_left -= 1
            self._budget.spend()
            if self.steps_left <= 0:
                return False
            admitted = all(tally.admits(table.places[number][at].tolist()) for number, tally in hard)
            if admitted and state.forest.has_room(table.draws(at)):
                state.give(kind, table, at)
                if self._go_on(member + 1, at if following else 0, spare):
                    return True
                state.give_back()
        rest = sum(each is kind for each in self._members[member:])
        return rest <= spare and self._go_on(member + rest, 0, spare - rest)

    def _spreads_hold(self) -> bool:
        """Return whether the members, now that all are placed, are spread as hard rules require."""
        tallies = enumerate(self._state.tallies)
        spreads = [at for at, each in tallies if each.rule.kind is RuleKind.SPREAD and each.rule.is_hard]
        return not any(self._state.excess(number) for number in spreads)
