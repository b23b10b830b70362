"""A simulated forest that finds places for requests, for plans of moves.

What trees hold is numbered, so that a result about a tree is found again when the tree holds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from placement.engine.forest import totals
from placement.engine.forest.arrays import Floats, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import SimulatedForest, emptied, only
from placement.engine.forest.texts import to_text
from placement.engine.search.answer import Answer
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.query import ForestQuery
from placement.engine.search.search import search_rows

# The most candidates looked at of one tree, and of one part of it: others differ little from these.
_MOST_IN_TREE, _MOST_IN_PART = 64, 8
# The most candidates looked at among a handful of providers, which has few of them.
_MOST_AMONG = 1000

Draws = tuple[Draw, ...]
TreeState = tuple[int, int]
"""What a tree holds, and what is held of sharing providers, as numbers."""


class SearchedForest(SimulatedForest):
    """A simulated forest that finds places for requests, and knows them while a tree holds the same."""

    def __init__(self, forest: Forest, sharing_map: SharingMap, sharing_trait: int) -> None:
        super().__init__(forest)
        self._sharing_map = sharing_map
        self.sharers = frozenset(sharing_map.of(forest, sharing_trait).providers.tolist())
        """The providers that share what they have with other trees."""
        self.sharing_roots = frozenset(map(self.root_of, self.sharers))
        """The roots of the trees of these providers."""
        self.was_cut = False
        """Whether a tree had more candidates than were looked at."""
        self._states: dict[int, int] = {}
        self._shared = 0
        self._parts: dict[int, list[Rows]] = {}
        self._empty_forest: Forest | None = None
        self._kinds: dict[int, int | None] = {}
        self._shares: dict[frozenset[int], tuple[Floats, dict[int, int]]] = {}
        self._found: dict[tuple[object, int, TreeState], list[Draws]] = {}
        self._taking: dict[tuple[object, int], tuple[list[int], dict[int, int]]] = {}

    # -- what is held -------------------------------------------------------------------------------

    def _add(self, draws: Collection[Draw], sign: int) -> None:
        super()._add(draws, sign)
        for draw in draws:
            # A sum does not depend on the order in which amounts were taken.
            number = sign * draw.amount * (hash((draw.row, draw.class_id)) | 1)
            if draw.row in self.sharers:
                self._shared += number
            else:
                root = self.root_of(draw.row)
                self._states[root] = self._states.get(root, 0) + number

    def state(self, root: int) -> TreeState:
        """Return numbers that are equal when the tree and all sharing providers hold the same."""
        return self._states.get(root, 0), self._shared

    def admits(self, draw: Draw) -> bool:
        """Return whether an inventory can take this amount more of one consumer."""
        column = self.column(draw.class_id)
        return bool(column.among_fitting(np.array([draw.row], np.intp), draw.amount)[0])

    def holds(self, draw: Draw) -> bool:
        """Return whether at least this amount of an inventory is in use."""
        column = self.column(draw.class_id)
        entry = column.entry_of(draw.row)
        return entry >= 0 and int(column.entries.used[entry]) >= draw.amount

    # -- what there is ------------------------------------------------------------------------------

    def root_of(self, row: int) -> int:
        """Return the root of a provider."""
        return int(self.providers.root[row])

    def uuids(self, rows: Sequence[int]) -> list[str]:
        """Return the uuids of providers."""
        return to_text(self.providers.uuid[np.array(rows, np.intp)]) if rows else []

    def sums(self, root: int, class_ids: Collection[int]) -> dict[int, int]:
        """Return how much a tree has left of each of the classes."""
        rows = self._members(root)
        return {
            class_id: int(np.maximum(self.column(class_id).free_of(rows), 0).sum()) for class_id in class_ids
        }

    def by_root(self, class_id: int) -> dict[int, tuple[int, int]]:
        """Return (amount left, amount held) of a class for each tree that offers it."""
        column = self.column(class_id)
        held = column.held
        entries = column.entries
        roots = self.providers.root[entries.provider[held]]
        found, at = np.unique(roots, return_inverse=True)
        free, used = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
        np.add.at(free, at, np.maximum(entries.free[held], 0))
        np.add.at(used, at, entries.used[held])
        return dict(zip(found.tolist(), zip(free.tolist(), used.tolist(), strict=True), strict=True))

    def amounts(self, root: int) -> dict[int, tuple[int, int]]:
        """Return how much a tree offers of each class, and how much of it is held."""
        return totals.of_tree(self, root)

    def shares(self, class_ids: frozenset[int]) -> Floats:
        """Return by row of each root the largest share of its tree that is in use, of some classes."""
        states, known = self._states, self._shares.get(class_ids)
        if known is None:
            known, changed = (np.zeros(self.count, np.float64), {}), self.roots.tolist()
        else:
            roots = states.keys() | known[1].keys()
            changed = [root for root in roots if states.get(root, 0) != known[1].get(root, 0)]
        largest = known[0]
        if changed:
            rows = np.array(changed, np.intp)
            largest[rows] = 0
            for amounts in totals.of_trees(self, rows, class_ids).values():
                capacity, used = np.array(amounts, np.float64)
                share = np.divide(used, capacity, out=np.zeros(len(rows)), where=capacity > 0)
                largest[rows] = np.maximum(largest[rows], share)
            self._shares[class_ids] = largest, dict(states)
        return largest

    def shared_classes(self) -> set[int]:
        """Return the classes that sharing providers offer."""
        rows = np.array(sorted(self.sharers), np.intp)
        return {id_ for id_, column in self.inventories.items() if (column.entries_of(rows) >= 0).any()}

    def _members(self, root: int) -> Rows:
        return self.in_trees(np.array([root], np.intp))

    # -- where a request fits -----------------------------------------------------------------------

    def taking(self, key: object, query: ForestQuery) -> list[int]:
        """Return the roots of trees that may take the request now, by storage id; `key` identifies it.

        Trees that changed since the last search are all included. Raises SearchEnded.
        """
        states, known = self._states, self._taking.get((key, self._shared))
        changed = []
        if known is not None:
            roots = states.keys() | known[1].keys()
            changed = [root for root in roots if states.get(root, 0) != known[1].get(root, 0)]
        if known is None or len(changed) > len(known[0]) // 2 + 64:
            known = self._taking[key, self._shared] = self._looked(self, [query]), dict(states)
            changed = []
        return self._by_id({*known[0], *changed}) if changed else known[0]

    def ever_taking(self, queries: Sequence[ForestQuery]) -> list[int]:
        """Return the roots of trees that could take any request if nothing were held, by storage id."""
        if self._empty_forest is None:
            self._empty_forest = emptied(self)
        return self._looked(self._empty_forest, queries)

    def _looked(self, forest: Forest, queries: Sequence[ForestQuery]) -> list[int]:
        """Return the roots of the trees from which some candidate takes something, by storage id."""
        every, roots = np.flatnonzero(forest.alive()), set[int]()
        for query in queries:
            wanted = replace(query, maximum=max(1, len(forest.roots)), order=None, depth_first=False)
            found = search_rows(forest, self._sharing_map, wanted, every, one_each=True)
            roots.update(np.unique(forest.providers.root[found.candidates]).tolist())
        return self._by_id(roots)

    def _by_id(self, roots: Collection[int]) -> list[int]:
        return sorted(roots, key=lambda root: int(self.providers.id[root]))

    def stranded(
        self, queries: Sequence[ForestQuery], class_id: int, roots: Collection[int] | None = None
    ) -> dict[int, int]:
        """Return how much of a class is stranded on each host, or on each of `roots`; 0 is left out.

        Amounts are stranded if they are free where no more requests fit. Raises SearchEnded.
        """
        forest: Forest = self
        sharing_map = self._sharing_map
        if roots is not None:
            forest, sharing_map = only(forest, [*roots, *map(self.root_of, self.sharers)]), SharingMap()
        found: dict[int, int] = {}
        for query in queries:
            for host in Capacity(forest, sharing_map, query).hosts():
                offered = host.classes.get(class_id)
                if offered is not None and offered.stranded and (roots is None or host.row in roots):
                    found[host.row] = offered.stranded
        return found

    def candidates(self, key: object, query: ForestQuery, root: int) -> list[Draws]:
        """Return the different ways in which a tree can take the request. Raises SearchEnded."""
        place = (key, root, self.state(root))
        if place in self._found:
            return self._found[place]
        query.budget.look()
        found: dict[object, Draws] = {}
        most = _MOST_IN_TREE
        for rows in self._parts_of(root):
            ways = self._ways(query, rows, most)
            if not ways and not found:
                # The whole tree comes first: where it takes nothing, no part of it does.
                break
            self.was_cut |= len(ways) >= most == _MOST_IN_TREE
            for draws in ways:
                found.setdefault(self.look_of(draws), draws)
            most = _MOST_IN_PART
        self._found[place] = list(found.values())
        return self._found[place]

    def _ways(self, query: ForestQuery, rows: Rows, most: int) -> list[Draws]:
        wanted = replace(query, maximum=most, order=None)
        answer = Answer(self, search_rows(self, self._sharing_map, wanted, rows))
        return [tuple(sorted(answer.draws(at))) for at in range(len(answer))]

    def candidates_among(self, query: ForestQuery, draws: Draws) -> list[Draws]:
        """Return candidates on the providers of `draws`, their ancestors and sharers. Raises SearchEnded."""
        query.budget.look()
        parents, rows = self.providers.parent, set[int]()
        for row in (draw.row for draw in draws if draw.row not in self.sharers):
            while row >= 0:
                rows.add(row)
                row = int(parents[row])
        return self._ways(query, np.array(sorted(rows), np.intp), _MOST_AMONG)

    def _parts_of(self, root: int) -> list[Rows]:
        """Return a tree, and then each of the trees below its root with the root, if there are several."""
        parts = self._parts.get(root)
        if parts is None:
            members, parents = self._members(root), self.providers.parent
            tops: dict[int, list[int]] = {}
            for row in members.tolist():
                top = row
                while parents[top] >= 0 and parents[top] != root:
                    top = int(parents[top])
                if row != root:
                    tops.setdefault(top, []).append(row)
            below = [np.array([root, *rows], np.intp) for rows in tops.values() if len(rows) > 1]
            parts = self._parts[root] = [members, *(below if len(below) > 1 else ())]
        return parts

    def look_of(self, draws: Draws) -> object:
        """Return a key, equal for ways that leave the tree alike, such as ways that use up like cores."""
        return tuple(sorted((*self._place_of(draw), draw.class_id, draw.amount) for draw in draws))

    def _place_of(self, draw: Draw) -> tuple[int, int]:
        """Return a key, equal for providers that such a draw uses up and that are alike in everything."""
        parent = int(self.providers.parent[draw.row])
        kind = self._kind_of(draw.row)
        if parent < 0 or kind is None:
            return draw.row, -1
        column = self.column(draw.class_id)
        is_all = int(column.entries.capacity_of[column.entry_of(draw.row)]) == draw.amount
        return (parent, kind) if is_all else (draw.row, -1)

    def _kind_of(self, row: int) -> int | None:
        """Return the number of the trait set of a leaf provider of one class; None for other providers."""
        if row not in self._kinds:
            columns = self.inventories.values()
            is_plain = sum(column.entry_of(row) >= 0 for column in columns) == 1
            is_leaf = not (self.providers.parent[self._members(self.root_of(row))] == row).any()
            traits = int(self.traits.numbers[row])
            self._kinds[row] = traits if is_plain and is_leaf else None
        return self._kinds[row]
