"""The answer of a search as plain Python values, ready to be written out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from placement.engine.forest import texts, totals
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.search.host_sums import first_uses
from placement.engine.search.ranking import ScoreTable
from placement.engine.search.search import FoundCandidates
from placement.engine.search.summaries import SummaryCache


class Answer:
    """The candidates found, in the forms that rendering needs."""

    def __init__(self, forest: Forest, found: FoundCandidates) -> None:
        self._forest = forest
        self._candidate_scores = found.scores
        self._shares = found.shares
        self.slots = found.slots
        """The slots of the query."""
        self.provider_rows: Indices = found.candidates
        """The provider rows of each candidate, one column per slot; of a split slot, one provider."""
        self.splits = found.shares is not None
        """Whether several providers may serve one slot: then only `elements` lists all of them."""
        self.is_ordered = found.scores is not None
        """Whether the candidates come best first."""

    def __len__(self) -> int:
        return len(self.provider_rows)

    def scores(self) -> ScoreTable | None:
        """Return the score of each candidate with its parts; None if nothing was ordered."""
        return None if self._candidate_scores is None else self._candidate_scores.table(self.provider_rows)

    def elements(self) -> Iterator[Element]:
        """Yield the candidates one by one, each with its amounts, mappings and score."""
        scores = self.present_scores()
        for at in range(len(self)):
            yield self._element(at, int(scores[at]))

    def element(self, at: int) -> Element:
        """Return one of the candidates, with its score as the forest is now."""
        return self._element(at, self.present_score(at))

    def present_scores(self, places: Rows | None = None) -> Amounts:
        """Return the scores of all candidates, or of some by their numbers; 0 if nothing was ordered.

        The scores are as the forest is now: a forked forest may have changed since.
        """
        rows = self.provider_rows if places is None else self.provider_rows[places]
        return (
            np.zeros(len(rows), np.int64)
            if self._candidate_scores is None
            else self._candidate_scores.of_candidates(rows)
        )

    def present_score(self, at: int) -> int:
        """Return the score of one candidate as the forest is now."""
        return int(self.present_scores(np.array([at]))[0])

    def draws(self, at: int) -> list[Draw]:
        """Return the draws of one of the candidates, with each inventory named once."""
        drawn: dict[tuple[int, int], int] = {}
        for row, class_id, amount in self._drawn(at):
            drawn[row, class_id] = drawn.get((row, class_id), 0) + amount
        return [Draw(*place, amount) for place, amount in drawn.items()]

    def _drawn(self, at: int) -> Iterator[Draw]:
        """Yield the draws of each slot of a candidate."""
        shares = {} if self._shares is None else self._shares[at]
        rows = self.provider_rows[at].tolist()
        for number, (slot, row) in enumerate(zip(self.slots, rows, strict=True)):
            for class_id, amount in slot.resources:
                for giver, part in shares.get(number, {row: amount}).items():
                    yield Draw(giver, class_id, part)

    def _element(self, at: int, score: int) -> Element:
        shares = {} if self._shares is None else self._shares[at]
        rows = self.provider_rows[at].tolist()
        givers = list({*rows, *chain(*shares.values())})
        uuids = dict(zip(givers, texts.to_text(self._forest.providers.uuid[givers]), strict=True))
        amounts: dict[str, dict[int, int]] = {}
        for row, class_id, amount in self._drawn(at):
            held = amounts.setdefault(uuids[row], {})
            held[class_id] = held.get(class_id, 0) + amount
        mappings: dict[str, dict[str, None]] = {}
        for number, (slot, row) in enumerate(zip(self.slots, rows, strict=True)):
            members = mappings.setdefault(slot.group.suffix, {})
            members.update((uuids[giver], None) for giver in shares.get(number, (row,)))
        return Element(amounts, {suffix: list(members) for suffix, members in mappings.items()}, score)

    def uuid_table(self, rows: Indices) -> texts.TextTable:
        """Return the uuids of the providers, one a row."""
        return texts.dashed(self._forest.providers.uuid[rows])

    def uuid_column(self, rows: Indices) -> texts.TextColumn:
        """Return the uuids of the providers, nothing where a row is NO_USE."""
        return texts.TextColumn(self._uuids, self._numbers[rows])

    @cached_property
    def _uuids(self) -> texts.TextList:
        """Return the uuids of all providers in use, and an empty text at the end."""
        return texts.objects([*texts.lines(self.uuid_table(self._used)), b""])

    @cached_property
    def _numbers(self) -> Rows:
        """Return the place of each provider row in `_uuids`; NO_USE, the last row, has the place -1."""
        numbers = np.full(self._forest.count + 1, NO_USE)
        numbers[self._used] = np.arange(len(self._used))
        return numbers

    @cached_property
    def _used(self) -> Indices:
        """Return all providers in use, ascending."""
        return self._distinct(self.provider_rows)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the candidates in batches of `size`; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield Batch(self.provider_rows[start : start + size])

    def contributing(self) -> Indices:
        """Return the providers that give resources to some candidate, ascending."""
        giving = [number for number, slot in enumerate(self.slots) if slot.resources]
        if len(giving) == len(self.slots):
            return self._used
        return self._distinct(self.provider_rows[:, giving])

    def trees(self) -> Indices:
        """Return the root of every tree that gives resources, in order of ids.

        Rows of deleted providers are used again, so their order differs from process to process.
        """
        roots = self._distinct(self._forest.providers.root[self.contributing()])
        return roots[np.argsort(self._forest.providers.id[roots])]

    def _distinct(self, rows: Indices) -> Indices:
        # Marking beats sorting and hashing up to millions of providers.
        marked = np.zeros(self._forest.count, bool)
        marked[rows] = True
        return np.flatnonzero(marked).astype(np.int32)

    def tree_texts(
        self, cache: SummaryCache, write: Callable[[list[ProviderSummary]], bytes], at_once: int
    ) -> Iterator[list[bytes]]:
        """Yield a text for each of the trees, in lists of `at_once` texts.

        A text is written from the summaries of the providers of its tree unless it is kept.
        """

        def written(roots: Indices) -> list[bytes]:
            return [write(members) for members in self.tree_summaries(roots)]

        roots = self.trees()
        for start in range(0, len(roots), at_once):
            yield cache.of(self._forest, roots[start : start + at_once], written)

    def tree_summaries(self, roots: Indices) -> Iterator[list[ProviderSummary]]:
        """Yield the summaries of all providers of each tree."""
        providers, place = self._forest.providers, np.zeros(self._forest.count, np.intp)
        place[roots] = np.arange(len(roots))
        rows = self._forest.in_trees(roots.astype(np.intp))
        # Tree by tree, then by id.
        rows = rows[np.lexsort((providers.id[rows], place[providers.root[rows]]))]
        summaries = iter(summarise(self._forest, rows))
        for size in providers.tree_size[roots].tolist():
            yield list(islice(summaries, size))

    def contributor_summaries(self) -> list[ProviderSummary]:
        """Return the summaries of the providers that give resources, without the rest of their trees."""
        return summarise(self._forest, self.contributing())

    def tree_uses(
        self, roots: Sequence[str], classes: Collection[int]
    ) -> dict[str, dict[int, tuple[int, int]]]:
        """Return capacity and use by class of the trees with these roots (uuids) that are known."""
        rows = {uuid: self._forest.row_of_uuid(uuid) for uuid in roots}
        known = {uuid: row for uuid, row in rows.items() if row >= 0}
        sums = totals.of_trees(self._forest, np.array(list(known.values()), np.intp), classes)
        return {
            uuid: {class_id: (capacity[at], used[at]) for class_id, (capacity, used) in sums.items()}
            for at, uuid in enumerate(known)
        }


class JointAnswer(Answer):
    """An answer that joins several searches: the first `maximum` candidates, best first or by turns."""

    def __init__(self, forest: Forest, founds: Sequence[FoundCandidates], maximum: int) -> None:
        super().__init__(forest, founds[0])
        # As with splits, only `elements` lists all of them.
        self.splits = True
        self.is_ordered = any(found.scores is not None for found in founds)
        # Ascending: the best scores first, or the first candidates of all searches.
        places = [
            -each.scores.of_candidates(each.candidates) if each.scores else np.arange(len(each.candidates))
            for each in founds
        ]
        order = np.argsort(np.concatenate(places), kind="stable")[:maximum]
        ends = np.cumsum([len(found.candidates) for found in founds])
        self._turns = np.searchsorted(ends, order, side="right")
        # The place of each candidate in the answer of its search.
        self._places = np.zeros(len(order), np.intp)
        self._parts = []
        for turn, found in enumerate(founds):
            mine = self._turns == turn
            count = int(mine.sum())
            self._places[mine] = np.arange(count)
            shares = None if found.shares is None else found.shares[:count]
            first = replace(found, candidates=found.candidates[:count], shares=shares)
            self._parts.append(Answer(forest, first))

    def __len__(self) -> int:
        return len(self._turns)

    def elements(self) -> Iterator[Element]:
        """Yield the candidates one by one."""
        parts = [part.elements() for part in self._parts]
        return (next(parts[turn])._replace(turn=turn) for turn in self._turns.tolist())

    def element(self, at: int) -> Element:
        """Return one of the candidates, with its score as the forest is now."""
        turn = int(self._turns[at])
        return self._parts[turn].element(int(self._places[at]))._replace(turn=turn)

    def present_scores(self, places: Rows | None = None) -> Amounts:
        """Return the scores of all candidates, or of some by their numbers, as the forest is now."""
        wanted = np.arange(len(self._turns)) if places is None else places
        scores = np.zeros(len(wanted), np.int64)
        for turn, part in enumerate(self._parts):
            mine = self._turns[wanted] == turn
            scores[mine] = part.present_scores(self._places[wanted[mine]])
        return scores

    def draws(self, at: int) -> list[Draw]:
        """Return the draws of one of the candidates, with each inventory named once."""
        return self._parts[int(self._turns[at])].draws(int(self._places[at]))

    def contributing(self) -> Indices:
        """Return the providers that give resources to some candidate, ascending."""
        return self._distinct(np.concatenate([part.contributing() for part in self._parts]))


# Stands in the place of a provider that another slot uses first.
NO_USE = -1
_WORD = 62


class ProviderSummary(NamedTuple):
    """A provider as summaries show it; `resources` lists (class id, capacity, used)."""

    uuid: str
    parent_uuid: str | None
    root_uuid: str
    resources: list[tuple[int, int, int]]
    trait_ids: frozenset[int]


class Element(NamedTuple):
    """A candidate: amounts by provider and class id, providers by suffix, and its score (0: unordered).

    `turn` is the number of the search that found it, among the searches that have one answer.
    """

    amounts: dict[str, dict[int, int]]
    mappings: dict[str, list[str]]
    score: int
    turn: int = 0


class SlotUse(NamedTuple):
    """The first use of a slot's provider; `slot` may be another slot that always has the same provider.

    `rows` has the provider's row per candidate, NO_USE where an earlier slot has the provider already.
    `is_partial`: there are such candidates.
    """

    slot: int
    rows: Indices
    is_partial: bool

    @property
    def presence(self) -> Rows:
        """Return 0 where there is such a use, NO_USE elsewhere."""
        return np.minimum(self.rows, 0)


class Batch:
    """A table of candidates that follow each other or are alike: one row each, one column per slot."""

    def __init__(self, rows: Indices, leaders: Sequence[int] | None = None) -> None:
        self._rows = rows
        # Per slot the first slot with the same provider, if that is one slot for all candidates.
        self._leaders = leaders

    def __len__(self) -> int:
        return len(self._rows)

    def patterns(self, most: int) -> list[tuple[Rows, Batch]] | None:
        """Return the candidates by which slots share providers, with their places; None above `most` ways."""
        rows = self._rows
        everywhere = np.arange(len(rows))
        if (rows == rows[:, :1]).all():
            return [(everywhere, Batch(rows, [0] * rows.shape[1]))]
        leaders = (rows[:, :, None] == rows[:, None, :]).argmax(axis=2)
        found: list[tuple[Rows, Batch]] = []
        left = everywhere
        while len(left):
            if len(found) == most:
                return None
            alike = (leaders[left] == leaders[left[0]]).all(axis=1)
            found.append((left[alike], Batch(rows[left[alike]], leaders[left[0]].tolist())))
            left = left[~alike]
        return found

    def first_uses(self, slots: Sequence[int]) -> Iterator[SlotUse]:
        """Yield for each of the slots the candidates in which no earlier slot has its provider.

        Slots that never use a provider first are left out.
        """
        if self._leaders is not None:
            for leader in dict.fromkeys(self._leaders[slot] for slot in slots):
                yield SlotUse(leader, self._rows[:, leader], False)
            return
        for slot, (mine, first) in zip(slots, first_uses(self._rows, slots), strict=True):
            if first.any():
                yield SlotUse(slot, np.where(first, mine, NO_USE), not first.all())

    def companions(self, use: SlotUse, slots: Sequence[int]) -> tuple[Rows, list[tuple[int, ...]]]:
        """Return which slots have the provider of `use`: per candidate the number of a set, and the sets.

        The number is NO_USE for candidates that do not use the provider first at this slot.
        """
        if self._leaders is not None:
            leader = self._leaders[use.slot]
            return use.presence, [tuple(slot for slot in slots if self._leaders[slot] == leader)]
        users = np.flatnonzero(use.rows != NO_USE)
        together = self._rows[users][:, slots] == use.rows[users, None]
        if (together == together[0]).all():
            return use.presence, [_chosen(slots, together[0])]
        powers = 1 << np.arange(min(len(slots), _WORD))
        words = [
            together[:, at : at + _WORD] @ powers[: len(slots) - at] for at in range(0, len(slots), _WORD)
        ]
        key = words[0] if len(words) == 1 else np.stack(words, axis=1)
        _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
        which = np.full(len(use.rows), NO_USE)
        which[users] = inverse.ravel()
        return which, [_chosen(slots, row) for row in together[first]]


def _chosen(slots: Sequence[int], flags: Mask) -> tuple[int, ...]:
    return tuple(slots[at] for at in np.flatnonzero(flags).tolist())


def summarise(forest: Forest, rows: Indices | Rows) -> list[ProviderSummary]:
    """Return the summaries of some providers, read from the forest."""
    providers = forest.providers
    resources: list[list[tuple[int, int, int]]] = [[] for _ in range(len(rows))]
    for class_id in sorted(forest.inventories):
        column = forest.inventories[class_id]
        at = column.entries_of(rows)
        having = np.flatnonzero(at >= 0)
        entries = at[having]
        capacities = column.entries.capacity_of[entries].tolist()
        used = column.entries.used[entries].tolist()
        for place, capacity, amount in zip(having.tolist(), capacities, used, strict=True):
            resources[place].append((class_id, capacity, amount))
    parents = providers.parent[rows]
    sets = forest.traits.numbers[rows].tolist()
    return [
        ProviderSummary(
            uuid,
            parent if has_parent else None,
            root,
            offered,
            forest.traits.sets[number],
        )
        for uuid, parent, has_parent, root, offered, number in zip(
            texts.to_text(providers.uuid[rows]),
            texts.to_text(providers.uuid[parents]),
            (parents >= 0).tolist(),
            texts.to_text(providers.uuid[providers.root[rows]]),
            resources,
            sets,
            strict=True,
        )
    ]
