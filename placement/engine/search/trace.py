"""The trace of the filters, from which a search is explained afterwards.

The filters note what passed each condition. A note is an append, and only an explanation evaluates the notes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from placement.engine.forest.arrays import Rows
from placement.engine.search.conditions import ProviderCondition
from placement.engine.search.query import GroupQuery


@dataclass(frozen=True, slots=True)
class ProvidersPassed:
    """The providers left after a condition of a group; `before` is None for all there are."""

    group: GroupQuery
    condition: ProviderCondition
    before: Rows | None
    rows: Rows


@dataclass(slots=True)
class Trace:
    """A trace: the notes of one pass of the filters, in order.

    `one_by_one`: compound conditions are taken apart, so that each part is noted.
    """

    one_by_one: bool = False
    providers: list[ProvidersPassed] = field(default_factory=list)

    @property
    def chains(self) -> list[list[ProvidersPassed]]:
        """Return the notes by slot: each begins with all providers that there are."""
        chains: list[list[ProvidersPassed]] = []
        for passed in self.providers:
            if passed.before is None:
                chains.append([])
            chains[-1].append(passed)
        return chains
