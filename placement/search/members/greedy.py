"""One member after another gets the best candidate that the rules leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.forest.arrays import Mask
from placement.search.budget import Budget
from placement.search.members.board import Board, Given, Kind, Table
from placement.search.members.quotas import Quota

_EQUAL = 1e-9


def place_each(
    board: Board, members: Sequence[Kind], budget: Budget, quota: Quota | None = None
) -> list[Given | None]:
    """What each of the members gets, None where nothing is left, or no quota. Raises SearchEnded."""
    found: list[Given | None] = []
    # Of a kind that got nothing another may get something only after somebody else did.
    stuck: dict[Kind, int] = {}
    for kind in members:
        budget.spend()
        if stuck.get(kind) == board.version:
            found.append(None)
            continue
        best = best_left(board, kind, quota)
        if best is None:
            stuck[kind] = board.version
            found.append(None)
            continue
        table, at = best
        board.give(kind, table, at)
        if quota is not None:
            quota.use(int(table.hosts[at]))
        found.append(board.given[-1])
        board.score_again(board.given[-1])
    return found


def best_left(board: Board, kind: Kind, quota: Quota | None = None) -> tuple[Table, int] | None:
    """The best candidate of a kind that there is room for and that the rules allow, None if there is none.

    What breaks soft rules least comes first, then what the order prefers.
    """
    table = board.table(kind)
    while True:
        fine = table.alive & allowed(board, kind, table)
        if quota is not None:
            fine &= quota.open(table.hosts)
        at = _best(board, kind, table, fine)
        if at is None:
            # Others may have been left out, and those that split an amount depend on what is left.
            stale = (table.is_cut or table.answer.splits) and table.at_version < board.version
            if not (stale or (table.is_cut and not table.narrowed)):
                return None
            table = board.search_again(kind)
        elif table.answer.splits and board.touched_since(int(table.hosts[at]), table.at_version):
            table = board.search_again(kind)
        elif board.has_room(table.draws(at)):
            return table, at
        else:
            table.alive[at] = False


def allowed(board: Board, kind: Kind, table: Table) -> Mask:
    """Which candidates break no rule that must hold."""
    fine: Mask = np.ones(len(table.alive), bool)
    for number in kind.rules:
        tally = board.tallies[number]
        if tally.rule.weight is None:
            fine &= tally.allowed(table.places[number])
    return fine


def _best(board: Board, kind: Kind, table: Table, fine: Mask) -> int | None:
    soft = [number for number in kind.rules if board.tallies[number].rule.weight is not None]
    if soft and fine.any():
        penalties = sum(
            (board.tallies[number].penalties(table.places[number]) for number in soft), np.zeros(len(fine))
        )
        fine = fine & (penalties <= penalties[fine].min() + _EQUAL)
    if not table.answer.is_ordered:
        first = int(fine.argmax()) if len(fine) else 0
        return first if len(fine) and fine[first] else None
    if not fine.any():
        return None
    return int(np.where(fine, table.scores, np.iinfo(np.int64).min).argmax())
