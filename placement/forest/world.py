"""A forest as it would be after a change: an altered copy of the columns; nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.forest.forest import Forest
from placement.forest.sharing import Sharing

# So many rows are added between two looks at the clock: some milliseconds of work.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Reoffered:
    """Inventories of a class in some trees with another ratio, or another reserved amount, or both."""

    class_id: int
    roots: Sequence[int]
    ratio: float | None = None
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """So many more hosts like the one with this root, on which nobody holds anything."""

    root: int
    count: int


@dataclass(frozen=True, slots=True)
class World:
    """What is to be different: first inventories, then hosts that come, then hosts that go by roots."""

    reoffered: Sequence[Reoffered] = ()
    added: Sequence[Added] = ()
    without: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Altered:
    """A forest after a change; `like[row]` is the root that the new root in a row was made like."""

    forest: Forest
    like: dict[int, int]


def altered(forest: Forest, world: World, look: Callable[[], None]) -> Altered:
    """The snapshot of a forest with what is to be different.

    `look` is called between pieces of work and raises what ends it.
    """
    look()
    copy = forest.writable_copy()
    for change in world.reoffered:
        look()
        rows = copy.in_trees(np.array(change.roots, np.intp))
        copy.column(change.class_id).reoffer(rows, change.ratio, change.reserved)
    like: dict[int, int] = {}
    for each in world.added:
        at_once = max(1, _ROWS_AT_ONCE // int(forest.providers.tree_size[each.root]))
        for done in range(0, each.count, at_once):
            look()
            rows = copy.repeat(each.root, min(at_once, each.count - done))
            like.update(dict.fromkeys(rows.tolist(), each.root))
    if world.without:
        copy.cut(np.unique(np.array(world.without, np.intp)))
    return Altered(copy, like)


def within(forest: Forest, sharing: Sharing, aggregates: frozenset[int]) -> Forest:
    """The forest with the trees whose roots are in the aggregates, and those that share with one of them."""
    own = forest.roots[forest.aggregates.satisfying(forest.roots, (aggregates,))]
    serving = sharing.pair_provider[np.isin(sharing.pair_anchor, own)]
    return only(forest, np.union1d(own, forest.roots_of(serving.astype(np.intp))).tolist())


def emptied(forest: Forest) -> Forest:
    """The forest as if nobody held anything."""
    copy = forest.writable_copy()
    for column in copy.inventories.values():
        column.empty()
    return copy


def only(forest: Forest, roots: Sequence[int]) -> Forest:
    """The forest without all other trees; rows stay as they are."""
    copy = forest.writable_copy()
    others = np.setdiff1d(copy.roots, np.array(roots, np.intp))
    copy.cut(others.astype(np.intp))
    return copy
