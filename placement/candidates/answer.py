"""The answer of a search as plain Python values, ready to be written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placement.candidates.arrays import Indices, Rows
from placement.candidates.forest import Forest
from placement.candidates.query import Slot
from placement.candidates.ranking import ScoreTable
from placement.candidates.search import Found
from placement.candidates.texts import Texts, filled
from placement.candidates.tree_texts import TreeTexts
from placement.candidates.uuids import dashed, to_text
from placement.candidates.walks import Candidates


class ProviderSummary(NamedTuple):
    """One provider as summaries show it; `resources` lists (class id, capacity, used)."""

    uuid: str
    parent_uuid: str | None
    root_uuid: str
    resources: list[tuple[int, int, int]]
    trait_ids: frozenset[int]


class Element(NamedTuple):
    """One candidate: amounts by provider and class id, providers by suffix, and its score (0: unordered)."""

    amounts: dict[str, dict[int, int]]
    mappings: dict[str, list[str]]
    score: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Candidates that place their slots alike: `provider_of[slot]` is the number of its distinct provider.

    `places` are theirs in the answer, None if there are no others.
    """

    provider_of: tuple[int, ...]
    places: Rows | None
    _rows: Candidates
    _forest: Forest

    def texts(self, pieces: Sequence[bytes], providers: Sequence[int], remarks: Sequence[Texts]) -> Texts:
        """Per candidate the pieces, between them uuids of the given distinct providers and then the remarks.

        A remark has one row for each candidate of the whole answer.
        """
        first = [self.provider_of.index(number) for number in providers]
        uuids = {slot: dashed(self._forest.providers.uuid[self._rows[:, slot]]) for slot in set(first)}
        mine = remarks if self.places is None else [remark[self.places] for remark in remarks]
        return filled(pieces, [*(uuids[slot] for slot in first), *mine])


class Answer:
    """Everything a rendering needs to know about found candidates."""

    def __init__(self, forest: Forest, found: Found) -> None:
        self._forest = forest
        self._found = found

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of the query."""
        return self._found.slots

    def __len__(self) -> int:
        return len(self._found.candidates)

    def scores(self) -> ScoreTable | None:
        """The score of each candidate with its parts; None if nothing was ordered."""
        if self._found.ranking is None:
            return None
        return self._found.ranking.table(self._found.candidates)

    def elements(self) -> Iterator[Element]:
        """The candidates one by one, with all there is to say of each."""
        ranking = self._found.ranking
        scores = [] if ranking is None else ranking.of_candidates(self._found.candidates).tolist()
        for at, row in enumerate(self._found.candidates):
            uuids = [uuid.decode() for uuid in to_text(self._forest.providers.uuid[row])]
            amounts: dict[str, dict[int, int]] = {}
            mappings: dict[str, list[str]] = {}
            for slot, uuid in zip(self.slots, uuids, strict=True):
                for class_id, amount in slot.resources:
                    held = amounts.setdefault(uuid, {})
                    held[class_id] = held.get(class_id, 0) + amount
                members = mappings.setdefault(slot.suffix, [])
                if uuid not in members:
                    members.append(uuid)
            yield Element(amounts, mappings, scores[at] if scores else 0)

    def layouts(self) -> Iterator[Layout]:
        """The candidates, grouped by how slots share providers."""
        rows = self._found.candidates
        if not len(rows):
            return
        # Per slot the first slot with the same provider.
        if (rows == rows[:, :1]).all():
            yield Layout((0,) * rows.shape[1], None, rows, self._forest)
            return
        firsts = (rows[:, :, None] == rows[:, None, :]).argmax(axis=2)
        remaining = np.arange(len(rows))
        while len(remaining):
            pattern = firsts[remaining[0]]
            alike = (firsts[remaining] == pattern).all(axis=1)
            chosen, remaining = remaining[alike], remaining[~alike]
            places = None if len(chosen) == len(rows) else chosen
            slots = pattern.tolist()
            order = {slot: number for number, slot in enumerate(dict.fromkeys(slots))}
            yield Layout(tuple(order[slot] for slot in slots), places, rows[chosen], self._forest)

    def contributing(self) -> Indices:
        """The providers that give resources to some candidate, ascending."""
        giving = [number for number, slot in enumerate(self.slots) if slot.resources]
        return self._distinct(self._found.candidates[:, giving])

    def trees(self) -> Indices:
        """The root of every tree that gives resources, ascending."""
        return self._distinct(self._forest.providers.root[self.contributing()])

    def _distinct(self, rows: Indices) -> Indices:
        # Marking beats sorting and hashing up to millions of providers.
        marked = np.zeros(self._forest.count, bool)
        marked[rows] = True
        return np.flatnonzero(marked).astype(np.int32)

    def tree_texts(self, kept: TreeTexts, write: Callable[[list[ProviderSummary]], bytes]) -> list[bytes]:
        """A text for each of the trees, written from the summaries of its providers unless it is kept."""

        def written(roots: Indices) -> list[bytes]:
            return [write(members) for members in self.tree_summaries(roots)]

        return kept.of(self._forest, self.trees(), written)

    def tree_summaries(self, roots: Indices) -> Iterator[list[ProviderSummary]]:
        """The summaries of all providers of each tree."""
        members = self._forest.members(roots)
        summaries = iter(summarise(self._forest, np.concatenate([*members, np.empty(0, np.int32)])))
        for tree in members:
            yield [next(summaries) for _ in tree]

    def contributor_summaries(self) -> list[ProviderSummary]:
        """The summaries of the providers that give resources, without the rest of their trees."""
        return summarise(self._forest, self.contributing())


def summarise(forest: Forest, rows: Indices) -> list[ProviderSummary]:
    """What the forest knows of some providers."""
    rows = rows.astype(np.int32)
    providers = forest.providers
    resources: list[list[tuple[int, int, int]]] = [[] for _ in range(len(rows))]
    for class_id in sorted(forest.inventories):
        column = forest.inventories[class_id]
        at = column.slots_of(rows)
        having = np.flatnonzero(at >= 0)
        slots = at[having]
        capacities = column.slots.capacity_of[slots].tolist()
        used = column.slots.used[slots].tolist()
        for place, capacity, amount in zip(having.tolist(), capacities, used, strict=True):
            resources[place].append((class_id, capacity, amount))
    parents = providers.parent[rows]
    sets = forest.traits.numbers(rows)
    return [
        ProviderSummary(
            uuid.decode(),
            parent.decode() if has_parent else None,
            root.decode(),
            offered,
            forest.traits.members(number),
        )
        for uuid, parent, has_parent, root, offered, number in zip(
            to_text(providers.uuid[rows]),
            to_text(providers.uuid[parents]),
            (parents >= 0).tolist(),
            to_text(providers.uuid[providers.root[rows]]),
            resources,
            sets,
            strict=True,
        )
    ]
