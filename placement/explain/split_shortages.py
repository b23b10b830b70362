"""What the subtrees of one tree lack for amounts that groups split, and where splitting would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from placement.domain.explanation import Alternative
from placement.domain.groups import SplitRule
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.forest.uuids import to_text
from placement.search.anchors import at_admitted_roots
from placement.search.conditions import Fits
from placement.search.problem import Problem, Split, Splitting, bits
from placement.search.query import ForestQuery

# More subtrees of one tree are not told one by one.
_MOST_SUBTREES = 8
_FEWEST_SIBLINGS = 2


class Lack(NamedTuple):
    """The slots want more of a class than the subtree of `top` can give (None: the whole tree)."""

    slots: tuple[int, ...]
    top: int | None
    wanted: int
    free: int


def lacks(problem: Problem, splitting: Splitting) -> Iterator[Lack]:
    """The subtrees in which an amount could be split, if all of them have too little; the fullest first.

    What several amounts want of the same subtrees is only told where each alone would find enough.
    """
    alone = [lack for split in splitting.splits for lack in _in_subtrees(problem, splitting, [split])]
    yield from alone
    if alone:
        return
    together: dict[object, list[Split]] = {}
    for split in splitting.splits:
        together.setdefault((split.supply, split.tops, split.options), []).append(split)
    for splits in together.values():
        yield from _in_subtrees(problem, splitting, splits)


def tops_of(problem: Problem, splitting: Splitting) -> Iterator[tuple[Lack, Sequence[int]]]:
    """What each subtree can give of an amount that is split, and the slots that its top would have to serve.

    For trees where one subtree has enough of it and another one has what else the group asks for.
    """
    for split in splitting.splits:
        slots = list(bits(min(split.tops, key=int.bit_count))) if split.tops else []
        for top, reach in _subtrees(problem, splitting, split):
            given = _given(splitting, split, reach, several=False)
            yield Lack((split.slot,), top, split.amount, given), slots


def _in_subtrees(problem: Problem, splitting: Splitting, splits: Sequence[Split]) -> list[Lack]:
    slots, wanted = tuple(split.slot for split in splits), sum(split.amount for split in splits)
    subtrees = list(_subtrees(problem, splitting, splits[0]))
    found = [
        Lack(slots, top, wanted, _given(splitting, splits[0], reach, several=len(splits) > 1))
        for top, reach in subtrees
    ]
    if not found:
        return [Lack(slots, None, wanted, 0)]
    if any(lack.free >= wanted for lack in found):
        return []
    return sorted(found, key=lambda lack: -lack.free)[:_MOST_SUBTREES]


def _subtrees(problem: Problem, splitting: Splitting, split: Split) -> Iterator[tuple[int | None, int]]:
    """(top, positions that could give parts below it) by who could be the top; None for the whole tree."""
    if not split.tops:
        yield None, split.options
        return
    # The narrowest rule last: the smallest set of groups that must be below one of them.
    narrowest = min(split.tops, key=int.bit_count)
    for top in bits(reduce(or_, (problem.options[slot] for slot in bits(narrowest)))):
        reach = split.options & splitting.below[top]
        if reach:
            yield top, reach


def _given(splitting: Splitting, split: Split, reach: int, *, several: bool) -> int:
    """How much the positions can give under the rule; all they have left if it is for several amounts."""
    supply = splitting.supplies[split.supply]
    if several or split.rule in (SplitRule.PACK, SplitRule.SPREAD):
        return sum(max(supply.room[position], 0) for position in bits(reach))
    whole = [supply.whole[position] for position in bits(reach)]
    if split.rule is SplitRule.ISOLATE:
        return sum(amount > 0 for amount in whole)
    return sum(amount for amount in whole if amount >= _FEWEST_SIBLINGS)


def alternative(
    forest: Forest, sharing: Sharing, query: ForestQuery, wanted: Fits, resource_class: str
) -> Alternative | None:
    """Where providers could split an amount that none has room for: below one parent, else in one tree.

    Only where the query admits the root.
    """
    column, amount = forest.column(wanted.class_id), wanted.amount
    rows = column.entries.provider[column.occupied()].astype(np.intp)
    rows = at_admitted_roots(forest, query, rows[~np.isin(rows, sharing.providers)])
    if np.isin(column.fitting(amount), np.concatenate([rows, sharing.providers])).any():
        return None
    room = np.maximum(column.headroom(rows), 0)
    parents = forest.providers.parent[rows]
    for tops in (np.where(parents >= 0, parents, rows), forest.roots_of(rows)):
        free = np.zeros(forest.count, np.int64)
        np.add.at(free, tops, room)
        if len(rows) and free.max() >= amount:
            # Of equal ones the first by its id: rows differ from process to process.
            fullest = np.flatnonzero(free == free.max())
            top = int(fullest[np.argmin(forest.providers.id[fullest])])
            givers = int(np.count_nonzero(room[tops == top]))
            uuid = to_text(forest.providers.uuid[[top]])[0]
            return Alternative(uuid, resource_class, amount, int(free[top]), givers)
    return None
