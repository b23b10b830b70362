"""Trying all ways to place so many members, where taking the best one after another fell short."""

from __future__ import annotations

from collections.abc import Sequence

from placement.domain.member_rules import RuleKind
from placement.search.budget import Budget
from placement.search.members.board import Board, Kind


class Trying:
    """Depth first: members of a kind get candidates in ascending order, for they may be exchanged."""

    def __init__(self, board: Board, members: Sequence[Kind], steps: int, budget: Budget) -> None:
        self._board = board
        self._members = sorted(members, key=lambda kind: len(board.first_table(kind).hosts))
        kinds = list(dict.fromkeys(self._members))
        # Members of a kind side by side.
        self._members.sort(key=kinds.index)
        self.steps_left = steps
        self._budget = budget

    @property
    def is_complete(self) -> bool:
        """Whether all ways were tried that there are, if nothing was found."""
        tables = [self._board.first_table(kind) for kind in set(self._members)]
        return self.steps_left > 0 and not any(table.is_cut or table.answer.splits for table in tables)

    def run(self, wanted: int) -> bool:
        """Place so many; whether it was found. The board was cleared before. Raises SearchEnded."""
        return self._go_on(0, 0, len(self._members) - wanted)

    def _go_on(self, member: int, first: int, spare: int) -> bool:
        if member == len(self._members):
            return self._holds()
        kind = self._members[member]
        following = member + 1 < len(self._members) and self._members[member + 1] is kind
        table = self._board.first_table(kind)
        for at in range(first, len(table.hosts)):
            self.steps_left -= 1
            self._budget.spend()
            if self.steps_left <= 0:
                return False
            places = [(number, table.places[number][at].tolist()) for number in kind.rules]
            if self._admits(places) and self._board.has_room(table.draws(at)):
                self._board.give(kind, table, at)
                if self._go_on(member + 1, at if following else 0, spare):
                    return True
                self._board.give_back()
        rest = sum(each is kind for each in self._members[member:])
        return rest <= spare and self._go_on(member + rest, 0, spare - rest)

    def _admits(self, places: Sequence[tuple[int, list[int]]]) -> bool:
        tallies = self._board.tallies
        return all(
            tallies[number].admits(each) for number, each in places if tallies[number].rule.weight is None
        )

    def _holds(self) -> bool:
        """Whether spreads hold, which only the last member decides."""
        hard = [
            number
            for number, tally in enumerate(self._board.tallies)
            if tally.rule.kind is RuleKind.SPREAD and tally.rule.weight is None
        ]
        return not any(self._board.excess(number) for number in hard)
