"""A forest as it would be after changes: amounts taken or given back, trees added, cut or altered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from placement.engine.forest.arrays import Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.forest.providers import NONE
from placement.engine.forest.sharing import Sharing

# Rows added between two looks at the clock: some milliseconds of work.
_ROWS_AT_ONCE = 4096


class SimulatedForest(Forest):
    """A forest that starts as a snapshot and is changed without effect on others.

    What is taken since a mark is given back by `back`; trees are altered, added and cut for good.
    """

    def __init__(self, forest: Forest) -> None:
        vars(self).update(vars(forest))
        self.providers = forest.providers.frozen()
        self.traits, self.aggregates = forest.traits.frozen(), forest.aggregates.frozen()
        self.inventories = {id_: column.frozen(self.count) for id_, column in forest.inventories.items()}
        self._vacant = list(forest._vacant)
        # It shares arrays even after the snapshot itself is gone.
        self._snapshots.add(self)
        # Draws, and no bound method: a cycle would keep the copied columns until a full collection.
        self._undo: list[Callable[[], object] | tuple[Draw, ...]] = []

    # -- what is held -------------------------------------------------------------------------------

    def take(self, draws: Collection[Draw]) -> None:
        """Hold the draws from existing inventories, even beyond their capacity."""
        self._add(draws, 1)
        self._undo.append(tuple(draws))

    def mark(self) -> int:
        """Return a mark of this moment, for `back`."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        """Give back all that was taken since a mark, the last first."""
        while len(self._undo) > mark:
            undo = self._undo.pop()
            if isinstance(undo, tuple):
                self._add(undo, -1)
            else:
                undo()

    def on_back(self, undo: Callable[[], object]) -> None:
        """Call `undo` when `back` comes to this moment, for notes that its caller took beside the forest."""
        self._undo.append(undo)

    def _add(self, draws: Collection[Draw], sign: int) -> None:
        providers = self.providers
        providers.own()
        for draw in draws:
            self.inventories[draw.class_id].take(draw.row, sign * draw.amount)
            providers.touch(int(providers.root[draw.row]))

    # -- what there is ------------------------------------------------------------------------------

    def reoffer(self, class_id: int, roots: Sequence[int], ratio: float | None, reserved: int | None) -> None:
        """Set another ratio or reserved amount, None for no other, of a class in these trees."""
        self.column(class_id).reoffer(self.in_trees(np.array(roots, np.intp)), ratio, reserved)

    def repeat(self, root: int, count: int, look: Callable[[], None]) -> list[int]:
        """Add `count` trees like that of a root, without allocations, and return their roots.

        `look` is called between pieces of work; an error in it ends the work.
        """
        members = np.sort(self.in_trees(np.array([root], np.intp)))
        at_once = max(1, _ROWS_AT_ONCE // len(members))
        found: list[int] = []
        for done in range(0, count, at_once):
            look()
            source = np.tile(members, min(at_once, count - done))
            rows = np.arange(self.count, self.count + len(source))
            self.count += len(rows)
            self.providers.own()
            self.providers.repeat(source, rows, len(members))
            for memberships in (self.traits, self.aggregates):
                memberships.repeat(source, rows)
            for column in self.inventories.values():
                column.repeat(source, rows)
            self.shape_version += 1
            found += rows[int(np.searchsorted(members, root)) :: len(members)].tolist()
        return found

    def cut(self, roots: Rows | Sequence[int]) -> None:
        """Take whole trees away."""
        rows = self.in_trees(np.unique(np.asarray(roots, np.intp)))
        for column in self.inventories.values():
            column.cut(rows)
        for memberships in (self.traits, self.aggregates):
            memberships.clear(rows)
        providers = self.providers
        providers.own()
        for numbers in (providers.id, providers.root, providers.parent, providers.next, providers.previous):
            numbers[rows] = NONE
        self._vacant.extend(rows.tolist())
        self.shape_version += 1


def emptied(forest: Forest) -> Forest:
    """Return the forest as if nothing were held."""
    simulated = SimulatedForest(forest)
    for column in simulated.inventories.values():
        column.empty()
    return simulated


def only(forest: Forest, roots: Sequence[int]) -> Forest:
    """Return the forest without all other trees; rows stay as they are."""
    simulated = SimulatedForest(forest)
    simulated.cut(np.setdiff1d(simulated.roots, np.array(roots, np.intp)))
    return simulated


def within(forest: Forest, sharing: Sharing, aggregates: frozenset[int]) -> Forest:
    """Return the forest with the trees that have roots in the aggregates or share with one of these trees."""
    own = forest.roots[forest.aggregates.satisfying(forest.roots, (aggregates,))]
    serving = sharing.pair_provider[np.isin(sharing.pair_anchor, own)]
    return only(forest, np.union1d(own, forest.roots_of(serving.astype(np.intp))).tolist())
