"""The results of goals: how much is achieved, and why it is not more."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement.planning.simulation import PlacedConsumer

SUMS, SEARCH, IMPOSSIBLE = "sums", "search", "impossible"
DEEPEST = 150
"""The most moves that wait for one another; with more the search would take too long."""
TIME_UP = "time ran out before all plans were tried"
TOO_DEEP = f"more than {DEEPEST} moves that wait for one another were not tried"
NOT_ALL = "not all plans could be tried: hosts have very many places, or share providers"
ALL_TRIED = "all plans were tried"
NO_PLACE = "found no other place"

NotMoved = tuple[PlacedConsumer, str]
"""A consumer that could not go, and why."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound: no plan has fewer `moves`. `by`: sums, a search of all with fewer, or no plan is possible."""

    moves: int
    by: str


@dataclass(slots=True)
class GoalResult:
    """A result: how much was wanted and how much the moves achieve. `left`: consumers that could not go.

    `complete`: the goal is reached, or proven to be out of reach. `why`: the reason it was not reached.
    """

    wanted: int
    achieved: int = 0
    complete: bool = True
    bound: Bound = field(default_factory=lambda: Bound(0, SUMS))
    left: list[NotMoved] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)
    why: str = ""
