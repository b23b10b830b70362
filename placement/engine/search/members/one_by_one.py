"""One member after another gets the best candidate that the rules leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.engine.forest.arrays import Mask
from placement.engine.search.budget import Budget
from placement.engine.search.members.quotas import Quota
from placement.engine.search.members.state import (
    AssignedCandidate,
    CandidateTable,
    MemberKind,
    PlacementState,
)

_EQUAL = 1e-9


def place_each(
    state: PlacementState, members: Sequence[MemberKind], budget: Budget, quota: Quota | None = None
) -> list[AssignedCandidate | None]:
    """Return the candidate of each member, None where none is left, or no quota. Raises SearchEnded."""
    candidates: list[AssignedCandidate | None] = []
    # A kind that got nothing may get something only after another member did.
    stuck: dict[MemberKind, int] = {}
    for kind in members:
        budget.spend()
        if stuck.get(kind) == state.version:
            candidates.append(None)
            continue
        best = best_left(state, kind, quota)
        if best is None:
            stuck[kind] = state.version
            candidates.append(None)
            continue
        table, at = best
        state.give(kind, table, at)
        if quota is not None:
            quota.use(int(table.hosts[at]))
        candidates.append(state.candidates[-1])
        state.score_again(state.candidates[-1])
    return candidates


def best_left(
    state: PlacementState, kind: MemberKind, quota: Quota | None = None
) -> tuple[CandidateTable, int] | None:
    """Return the best candidate of a kind that still fits and that the rules allow, or None.

    Candidates that break soft rules the least come first, then the ones that the order prefers.
    """
    table = state.table(kind)
    while True:
        fine = table.alive.copy()
        for number, tally in state.hard(kind):
            fine &= tally.allowed(table.places[number])
        if quota is not None:
            fine &= quota.open(table.hosts)
        at = _best(state, kind, table, fine)
        if at is None:
            # Other candidates may have been cut, and candidates that split an amount depend on what is left.
            stale = (table.is_cut or table.answer.splits) and table.at_version < state.version
            if not (stale or (table.is_cut and not table.narrowed)):
                return None
            table = state.search_again(kind)
        elif table.answer.splits and state.touched_since(int(table.hosts[at]), table.at_version):
            table = state.search_again(kind)
        elif state.forest.has_room(table.draws(at)):
            return table, at
        else:
            table.alive[at] = False


def _best(state: PlacementState, kind: MemberKind, table: CandidateTable, fine: Mask) -> int | None:
    if not fine.any():
        return None
    soft = [number for number in kind.rules if not state.tallies[number].rule.is_hard]
    if soft:
        penalties = sum(
            (state.tallies[number].penalties(table.places[number]) for number in soft), np.zeros(len(fine))
        )
        fine = fine & (penalties <= penalties[fine].min() + _EQUAL)
    if not table.answer.is_ordered:
        return int(fine.argmax())
    return int(np.where(fine, table.scores, np.iinfo(np.int64).min).argmax())
