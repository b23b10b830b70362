"""Several searches of one forest, each in other trees, as one answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from placement.forest.arrays import Amounts, Indices, Rows
from placement.forest.forest import Forest
from placement.search.answer import Answer, Draw, Element
from placement.search.search import FoundCandidates


class JointAnswer(Answer):
    """The first `maximum` of the candidates, best first or by turns: only as elements, as with splits."""

    def __init__(self, forest: Forest, founds: Sequence[FoundCandidates], maximum: int) -> None:
        super().__init__(forest, founds[0])
        places = np.concatenate([_places(found) for found in founds])
        order = np.argsort(places, kind="stable")[:maximum]
        ends = np.cumsum([len(found.candidates) for found in founds])
        self._turns = np.searchsorted(ends, order, side="right")
        counts = np.bincount(self._turns, minlength=len(founds)).tolist()
        self._parts = [
            Answer(forest, _first(found, count)) for found, count in zip(founds, counts, strict=True)
        ]

    @property
    def splits(self) -> bool:
        """Only `elements` tells all of them."""
        return True

    def __len__(self) -> int:
        return len(self._turns)

    def elements(self) -> Iterator[Element]:
        """The candidates one by one."""
        parts = [part.elements() for part in self._parts]
        return (next(parts[turn])._replace(turn=turn) for turn in self._turns.tolist())

    def element(self, at: int) -> Element:
        """One of the candidates, with its score as the forest is now."""
        return self._part(at).element(self._place(at))._replace(turn=int(self._turns[at]))

    @property
    def is_ordered(self) -> bool:
        """Whether the candidates come best first."""
        return any(part.is_ordered for part in self._parts)

    def present_scores(self) -> Amounts:
        """The score of each candidate as the forest is now, 0 if nothing was ordered."""
        scores = np.zeros(len(self._turns), np.int64)
        for turn, part in enumerate(self._parts):
            scores[self._turns == turn] = part.present_scores()
        return scores

    def present_scores_at(self, places: Rows) -> Amounts:
        """The scores of some candidates as the forest is now."""
        return np.array([self.present_score(at) for at in places.tolist()], np.int64)

    def present_score(self, at: int) -> int:
        """The score of one candidate as the forest is now."""
        return self._part(at).present_score(self._place(at))

    def draws(self, at: int) -> list[Draw]:
        """What one of the candidates takes of which inventories, each named once."""
        return self._part(at).draws(self._place(at))

    def _part(self, at: int) -> Answer:
        return self._parts[int(self._turns[at])]

    def _place(self, at: int) -> int:
        """The place of a candidate among those of its search."""
        return int((self._turns[:at] == self._turns[at]).sum())

    def contributing(self) -> Indices:
        """The providers that give resources to some candidate, ascending."""
        return self._distinct(np.concatenate([part.contributing() for part in self._parts]))


def _places(found: FoundCandidates) -> Amounts:
    """Numbers by which the candidates stand among those of others, ascending."""
    if found.ranking is None:
        return np.arange(len(found.candidates))
    scores: Amounts = -found.ranking.of_candidates(found.candidates)
    return scores


def _first(found: FoundCandidates, count: int) -> FoundCandidates:
    shares = None if found.shares is None else found.shares[:count]
    return replace(found, candidates=found.candidates[:count], shares=shares)
