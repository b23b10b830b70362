"""The slots of a query that are split, as features of trees and as parts of problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.forest.arrays import Amounts, Indices
from placement.forest.forest import Forest
from placement.search.problem import Split, Splitting, Supply
from placement.search.query import ForestQuery, Slot

# Stands in the place of positions for slots that the solver leaves to what shares amounts out.
_ANY = 1
_NO_GROUP = -1


class SplitSlots:
    """Which slots are split, from which classes, below which other slots."""

    def __init__(self, slots: Sequence[Slot], query: ForestQuery) -> None:
        self._slots = slots
        self._apart = query.isolate
        self._numbers = [number for number, slot in enumerate(slots) if slot.rule]
        self._classes = list(dict.fromkeys(slots[number].resources[0][0] for number in self._numbers))
        suffixes = list(dict.fromkeys(slot.suffix for slot in slots))
        self._groups = [suffixes.index(slot.suffix) for slot in slots]
        self._tops = {number: tuple(self._tops_of(number, query)) for number in self._numbers}
        self._demands = [
            tuple(0 if slot.rule else dict(slot.resources).get(class_id, 0) for slot in slots)
            for class_id in self._classes
        ]

    def _tops_of(self, number: int, query: ForestQuery) -> Iterator[int]:
        """The slots of its own group and of its same_subtree constraints that are not split."""
        suffix = self._slots[number].suffix
        for names in (frozenset((suffix,)), *(names for names in query.same_subtree if suffix in names)):
            members = (at for at, slot in enumerate(self._slots) if slot.suffix in names and not slot.rule)
            mask = sum(1 << member for member in members)
            if mask:
                yield mask

    @property
    def look_below(self) -> bool:
        """Whether it matters which provider is below which."""
        return any(self._tops.values())

    def features(self, forest: Forest, providers: Indices) -> Iterator[Amounts]:
        """What the providers can give of each class that is split, one table each."""
        for class_id in self._classes:
            for column in forest.column(class_id).parts(providers.ravel()):
                yield column.reshape(providers.shape)

    def splitting(
        self, options: Sequence[int], below: tuple[int, ...], rows: Iterator[list[int]]
    ) -> Splitting | None:
        """What a problem says of them; `rows` are the features of one root in their order."""
        if not self._numbers:
            return None
        supplies = tuple(
            Supply(tuple(next(rows)), tuple(next(rows)), tuple(next(rows)), tuple(next(rows)), demand)
            for demand in self._demands
        )
        return Splitting(
            splits=tuple(self._split(number, options[number]) for number in self._numbers),
            supplies=supplies,
            below=below,
            group_of=tuple(
                group if self._apart and slot.suffixed else _NO_GROUP
                for group, slot in zip(self._groups, self._slots, strict=True)
            ),
        )

    def _split(self, number: int, options: int) -> Split:
        slot = self._slots[number]
        ((class_id, amount),) = slot.resources
        assert slot.rule is not None
        return Split(
            slot=number,
            group=self._groups[number],
            supply=self._classes.index(class_id),
            amount=amount,
            rule=slot.rule,
            options=options,
            tops=self._tops[number],
            apart=self._apart,
        )

    def without(self, options: tuple[int, ...]) -> tuple[int, ...]:
        """The positions of each slot; any for those that are split."""
        if not self._numbers:
            return options
        return tuple(_ANY if slot.rule else mask for slot, mask in zip(self._slots, options, strict=True))
