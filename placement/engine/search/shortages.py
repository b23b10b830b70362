"""The shortages of a tree for a request, worked out from the arrangement that lacks least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placement.engine.domain.explanation import Reason, Shortage
from placement.engine.domain.tree_specs import NUMA_ROOT
from placement.engine.forest.arrays import Floats, Indices, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.forest.texts import to_text
from placement.engine.search.arrangement import NO_POSITION, Arrangement
from placement.engine.search.conditions import Carries, OffersClass, ProviderCondition
from placement.engine.search.equivalence import EquivalenceClasses
from placement.engine.search.filters import Choices, FilledSlots, choices_of
from placement.engine.search.problem import Problem, Splitting, bits
from placement.engine.search.query import ForestQuery, IdSet, Slot, demands_of, slots_of
from placement.engine.search.split_lacks import Lack, lacks, tops_of
from placement.engine.search.trace import Trace
from placement.engine.search.vocabulary import Vocabulary

# The distance of a tree without any provider for a group; missing amounts make at most 1.
_NO_PROVIDER = 2.0


class Shortages:
    """The shortages of any trees for one query, on the forest as it is."""

    def __init__(self, forest: Forest, sharing: Sharing, query: ForestQuery, vocabulary: Vocabulary) -> None:
        self._words = vocabulary
        self._forest = forest
        self._sharing = sharing
        self._slots = slots_of(query)
        self._demands = demands_of(self._slots)
        self._isolate = query.isolate
        self._budget = query.budget
        # The providers that could serve each slot if amounts did not matter, and the conditions on them.
        known: dict[object, tuple[Choices, Trace]] = {}
        for slot in self._slots:
            if slot.condition not in known:
                self._budget.look()
                trace = Trace(one_by_one=True)
                known[slot.condition] = choices_of(forest, slot, sharing, trace, with_room=False), trace
        self._choices = [known[slot.condition][0] for slot in self._slots]
        self._traces = [known[slot.condition][1] for slot in self._slots]
        filled = FilledSlots(forest, sharing, query, self._slots, self._choices)
        self._equivalence = EquivalenceClasses(filled)

    # -- from afar, for many trees ------------------------------------------------------------------

    def distances(self, roots: Indices) -> Floats:
        """Return how far each tree is from serving the request: missing shares, summed, only for comparing.

        Each slot counts where it lacks the least, and each class if it is short in sum. Providers count if
        they are fewer than the slots that are kept apart.
        """
        rank_of = np.full(self._forest.count, -1, np.int32)
        rank_of[roots] = np.arange(len(roots), dtype=np.int32)
        total = np.zeros(len(roots))
        alike: dict[int, list[int]] = {}
        for number, choice in enumerate(self._choices):
            alike.setdefault(id(choice), []).append(number)
        for numbers in alike.values():
            self._budget.look()
            rank, rows = self._serving(rank_of, numbers[:1])
            least = np.full(len(roots), _NO_PROVIDER)
            np.minimum.at(least, rank, self._gaps(self._slots[numbers[0]], rows))
            total += least * len(numbers)
        for class_id, demand in self._demands.items():
            self._budget.look()
            rank, rows = self._serving(rank_of, [number for number, wanted in enumerate(demand) if wanted])
            free = np.maximum(self._forest.column(class_id).free_of(rows), 0)
            sums = np.bincount(rank, weights=free, minlength=len(roots))
            total += np.maximum(sum(demand) - sums, 0) / sum(demand)
        apart = [number for number, slot in enumerate(self._slots) if self._isolate and slot.group.suffix]
        if apart:
            rank, _ = self._serving(rank_of, apart)
            found = np.bincount(rank, minlength=len(roots))
            total += np.maximum(len(apart) - found, 0) * _NO_PROVIDER
        return total

    def _serving(self, rank_of: Indices, numbers: Sequence[int]) -> tuple[Indices, Rows]:
        """Return (rank of the tree, provider) of all that could serve some of the slots, once per tree."""
        choices = Choices.union(self._choices[number] for number in numbers)
        roots, rows = choices.served(self._forest, self._sharing)
        ranks = rank_of[roots]
        return ranks[ranks >= 0], rows[ranks >= 0]

    def _gaps(self, slot: Slot, rows: Rows) -> Floats:
        """Return which share of the slot's amounts each provider lacks, in the mean of its classes."""
        gaps = np.zeros(len(rows))
        # What one provider lacks of an amount that is split does not matter.
        for class_id, amount in () if slot.rule else slot.resources:
            free = np.maximum(self._forest.column(class_id).free_of(rows), 0)
            gaps += np.maximum(amount - free, 0) / amount
        return gaps / max(1, len(slot.resources))

    # -- closely, for one tree ----------------------------------------------------------------------

    def of(self, root: int) -> tuple[Shortage, ...]:
        """Return the shortages of the tree, or the conditions that several slots cannot meet together."""
        trees = next(self._equivalence.of(np.array([root], np.int32)), None)
        if trees is None:
            nowhere = (NO_POSITION,) * len(self._slots)
            return tuple(self._unserved(root, nowhere, nowhere, np.empty(0, np.int32)))
        problem, rows = trees.problem, trees.providers[0]
        free = (self._forest.column(class_id).free_of(rows).tolist() for class_id in self._demands)
        arrangement = Arrangement(problem, list(self._demands.values()), free, self._budget)
        splitting = problem.splitting
        shown = [
            *self._unserved(root, arrangement.positions, arrangement.tops, rows),
            *self._overdrawn(arrangement.positions, rows),
            *(self._split(lack, rows) for lack in (lacks(problem, splitting) if splitting else ())),
        ]
        if splitting and not shown:
            shown += self._elsewhere(problem, splitting, rows)
        shown += self._uncovered(problem, arrangement.positions, rows)
        return tuple(shown) or (Shortage(Reason.TOGETHER, self._groups(range(len(self._slots)))),)

    def _split(self, lack: Lack, rows: Indices) -> Shortage:
        slot = self._slots[lack.slots[0]]
        ((class_id, _),) = slot.resources
        carries = Carries(slot.group.required, slot.group.forbidden)
        top = None if lack.top is None else int(rows[lack.top])
        traits = () if top is None else self._forest.traits.of(top)
        return Shortage(
            Reason.SPLIT,
            self._groups(lack.slots),
            None if top is None else self._uuid(top),
            self._words.resource_class(class_id),
            wanted=lack.wanted,
            free=lack.free,
            missing=lack.wanted - lack.free,
            condition=self._words.stated(carries) if carries.required or carries.forbidden else None,
            is_numa=any(self._words.trait(trait) == NUMA_ROOT for trait in traits),
        )

    def _elsewhere(self, problem: Problem, splitting: Splitting, rows: Indices) -> Iterator[Shortage]:
        """Yield shortages by subtree, if one has enough of the split amount and another of all else."""
        shown = set()
        for lack, slots in tops_of(problem, splitting):
            if lack.free < lack.wanted:
                yield self._split(lack, rows)
            elif lack.top is not None:
                row = int(rows[lack.top])
                for class_id, demand in self._demands.items():
                    drawn = [slot for slot in slots if demand[slot]]
                    if drawn and (class_id, row) not in shown:
                        shown.add((class_id, row))
                        yield from self._short(class_id, demand, {row: drawn})

    def _uncovered(self, problem: Problem, positions: Sequence[int], rows: Indices) -> Iterator[Shortage]:
        """Yield the traits of the base group for which no provider has room beside all else."""
        slots = [slot for slot, each in enumerate(self._slots) if not each.group.suffix]
        if not slots or any(positions[slot] == NO_POSITION for slot in slots):
            return
        for any_of in self._slots[slots[0]].group.required:
            if not any(self._covers(problem, positions, rows, slot, any_of) for slot in slots):
                condition = self._words.stated(Carries((any_of,)))
                yield Shortage(Reason.TOGETHER, self._groups(slots), condition=condition)

    def _covers(
        self, problem: Problem, positions: Sequence[int], rows: Indices, slot: int, any_of: IdSet
    ) -> bool:
        """Return whether a provider with such a trait serves a slot, or could beside the other slots."""
        ((class_id, amount),) = self._slots[slot].resources
        demand = self._demands[class_id]
        for position in bits(problem.options[slot]):
            row = int(rows[position])
            others = sum(
                demand[other] for other, at in enumerate(positions) if at == position and other != slot
            )
            free = int(self._forest.column(class_id).free_of(np.array([row], np.intp))[0])
            if any_of & self._forest.traits.of(row) and (
                position == positions[slot] or free - others >= amount
            ):
                return True
        return False

    def _overdrawn(self, positions: Sequence[int], rows: Indices) -> Iterator[Shortage]:
        """Yield classes that a provider has too little of, or gives in other units only."""
        for class_id, demand in self._demands.items():
            drawn: dict[int, list[int]] = {}
            for slot, position in enumerate(positions):
                if position != NO_POSITION and demand[slot]:
                    drawn.setdefault(int(rows[position]), []).append(slot)
            yield from self._short(class_id, demand, drawn)
            column = self._forest.column(class_id)
            for row, slots in drawn.items():
                if not column.admits(row, [demand[slot] for slot in slots]):
                    name = self._words.resource_class(class_id)
                    yield Shortage(Reason.UNITS, self._groups(slots), self._uuid(row), name)
                    break

    def _short(self, class_id: int, demand: Sequence[int], drawn: dict[int, list[int]]) -> Iterator[Shortage]:
        """Yield the providers that have too little, as one shortage of the class."""
        rows = np.array(list(drawn), np.intp)
        free = dict(zip(drawn, self._forest.column(class_id).free_of(rows).tolist(), strict=True))
        wanted = {row: sum(demand[slot] for slot in slots) for row, slots in drawn.items()}
        short = [row for row in drawn if wanted[row] > free[row]]
        if short:
            yield Shortage(
                Reason.AMOUNT,
                self._groups([slot for row in short for slot in drawn[row]]),
                self._uuid(short[0]) if len(short) == 1 else None,
                self._words.resource_class(class_id),
                wanted=sum(wanted[row] for row in short),
                free=sum(max(free[row], 0) for row in short),
                missing=sum(wanted[row] - free[row] for row in short),
            )

    def _unserved(
        self, root: int, positions: Sequence[int], tops: Sequence[int], rows: Indices
    ) -> Iterator[Shortage]:
        """Yield the slots without a provider, like slots together."""
        alike: dict[tuple[Reason, int, ProviderCondition | None], list[int]] = {}
        for slot, position in enumerate(positions):
            if position == NO_POSITION:
                alike.setdefault(self._why(root, slot, tops[slot]), []).append(slot)
        for (reason, top, condition), slots in alike.items():
            provider = self._uuid(int(rows[top])) if top != NO_POSITION else None
            if isinstance(condition, OffersClass):
                wanted = sum(dict(self._slots[slot].resources)[condition.class_id] for slot in slots)
                name = self._words.resource_class(condition.class_id)
                yield Shortage(reason, self._groups(slots), None, name, wanted, missing=wanted)
            else:
                shown = None if condition is None else self._words.stated(condition)
                yield Shortage(reason, self._groups(slots), provider, condition=shown)

    def _why(self, root: int, slot: int, top: int) -> tuple[Reason, int, ProviderCondition | None]:
        if top != NO_POSITION:
            return Reason.BELOW, top, None
        for passed in self._traces[slot].providers:
            if not (self._forest.roots_of(passed.rows) == root).any():
                return Reason.NO_PROVIDER, NO_POSITION, passed.condition
        return Reason.APART, NO_POSITION, None

    def _groups(self, slots: Sequence[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._slots[slot].group.suffix for slot in sorted(slots)))

    def _uuid(self, row: int) -> str:
        return to_text(self._forest.providers.uuid[[row]])[0]
