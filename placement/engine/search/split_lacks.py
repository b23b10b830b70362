"""The lack of the subtrees of one tree for amounts that groups split, and where splitting would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placement.engine.domain.groups import SplitRule
from placement.engine.search.distribution import FEWEST_SIBLINGS
from placement.engine.search.problem import Problem, Split, Splitting, bits, union

# Further subtrees of one tree are not reported one by one.
_MOST_SUBTREES = 8


class Lack(NamedTuple):
    """The amount that slots want of a class; the subtree of `top` (None: the tree) has it `free` in part."""

    slots: tuple[int, ...]
    top: int | None
    wanted: int
    free: int


def lacks(problem: Problem, splitting: Splitting) -> Iterator[Lack]:
    """Yield the subtrees in which an amount could be split, if all have too little; the fullest first.

    The sum of several amounts that want the same subtrees is reported only if each alone would find enough.
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
    """Yield the lack of each subtree for a split amount, and the slots that its top would have to serve.

    This is for trees where one subtree has enough of it and another one has all else that the group asks for.
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
    """Yield (top, positions that could give parts below it) for each possible top; None: the whole tree."""
    if not split.tops:
        yield None, split.options
        return
    # The narrowest rule decides: the smallest set of slots that must be below one of them.
    narrowest = min(split.tops, key=int.bit_count)
    for top in bits(union(problem.options[slot] for slot in bits(narrowest))):
        reach = split.options & splitting.below[top]
        if reach:
            yield top, reach


def _given(splitting: Splitting, split: Split, reach: int, *, several: bool) -> int:
    """Return how much the positions can give under the rule; for several amounts, all that is left there."""
    supply = splitting.supplies[split.supply]
    if several or split.rule in (SplitRule.PACK, SplitRule.SPREAD):
        return sum(max(supply.headroom[position], 0) for position in bits(reach))
    whole = [supply.whole[position] for position in bits(reach)]
    if split.rule is SplitRule.ISOLATE:
        return sum(amount > 0 for amount in whole)
    return sum(amount for amount in whole if amount >= FEWEST_SIBLINGS)
