"""A plan: moves in their order, what they are for, and how far from the best it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Resources = Mapping[str, Mapping[str, int]]
"""Provider uuid -> resource class -> amount."""

REWRITING, EVICTION = "rewriting", "eviction"


@dataclass(frozen=True, slots=True)
class PodMove:
    """Which pod it is, and what it would be given; the node decides anew when it comes."""

    cluster: str
    namespace: str
    name: str
    uid: str
    from_node: str
    to_node: str
    cpuset: str


@dataclass(frozen=True, slots=True)
class Move:
    """One consumer goes from what it holds to something else.

    `kind`: by what it was moved, query, pod or guessed. `by`: rewriting allocations, or eviction.
    """

    consumer: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    kind: str
    by: str
    from_host: str
    to_host: str
    before: Resources
    after: Resources
    pod: PodMove | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan has fewer `moves`: by sums, or because the search tried all with fewer; or none can be."""

    moves: int
    by: str


@dataclass(frozen=True, slots=True)
class Use:
    """What a host offers of a class, and what of it is in use before and after."""

    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A host that the plan concerns."""

    uuid: str
    name: str | None
    consumers: tuple[int, int]
    classes: Mapping[str, Use]


@dataclass(frozen=True, slots=True)
class Left:
    """A consumer that should have been moved and was not, and why."""

    consumer: str
    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`wanted` and `achieved` count what the goal is about: requests, hosts, or stranded units (then `wanted`
    is what there was). `complete`: the goal is reached, or proven to be out of reach within the limits. `why`
    it was not reached, empty if it was. `placements`: where requests would go.
    """

    goal: str
    wanted: int
    achieved: int
    complete: bool
    moves: Sequence[Move]
    bound: Bound
    why: str
    hosts: Sequence[PlannedHost]
    placements: Sequence[Resources] = ()
    left: Sequence[Left] = ()
    emptied: Sequence[str] = ()
    stranded: Mapping[str, tuple[int, int]] = field(default_factory=dict)
