"""Plans of moves and the requests for them, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.engine.domain.claims import AmountsByProvider
from placement.planning.capacity import Question, RequestKind
from placement.planning.goal_results import Bound
from placement.planning.limits import PlanLimits
from placement.planning.watched_rooms import WatchedRoom
from placement.pods.state.model import RecordedPod

FIT, EMPTY, FREE, DEFRAGMENT = "fit", "empty", "free", "defragment"
REWRITING, EVICTION = "rewriting", "eviction"
POSSIBLE, DONE, IMPOSSIBLE = "possible", "done", "impossible"


@dataclass(frozen=True, slots=True)
class PodMove:
    """The pod of a move, and the CPUs it would get; they are chosen anew when the pod comes."""

    cluster: str
    namespace: str
    name: str
    uid: str
    from_node: str
    to_node: str
    cpuset: str


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one consumer from its allocations to others.

    `kind`: the request it was moved by: query, pod or guessed. `by`: rewriting allocations, or eviction.
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
    before: AmountsByProvider
    after: AmountsByProvider
    pod: PodMove | None = None


class ClassUse(NamedTuple):
    """The capacity of a host for a class, and the amounts in use before and after a plan."""

    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A host that the plan concerns, and how many of the requests it would take."""

    uuid: str
    name: str | None
    consumers: tuple[int, int]
    classes: Mapping[str, ClassUse]
    requests: int = 0


class Left(NamedTuple):
    """A consumer that stays though the goal needs it to move, and why; `pod` if it is one."""

    consumer: str
    host: str
    why: str
    pod: RecordedPod | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `wanted` and `achieved` count requests, hosts or stranded units (`wanted`: units at first).
    `complete`: the goal is reached, or proven to be out of reach within the limits. `why`: the reason it was
    not reached, empty if it was. `placements`: where requests would go. `idle`: how many hosts were empty.
    `watched`: the room of watched kinds before and after. `closed`: consumers may go to closed hosts.
    """

    goal: str
    cluster: str | None
    wanted: int
    achieved: int
    complete: bool
    moves: Sequence[Move]
    bound: Bound
    why: str
    hosts: Sequence[PlannedHost]
    placements: Sequence[AmountsByProvider] = ()
    left: Sequence[Left] = ()
    emptied: Sequence[str] = ()
    stranded: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    idle: int = 0
    watched: Sequence[WatchedRoom] = ()
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: room for `count` requests of a `kind`, `hosts` empty, `count` hosts free, or less of a
    `resource_class` stranded for a `kind` (if not given: PCPU, VCPU or the first class that it asks for).
    """

    name: str
    kind: RequestKind = field(default_factory=RequestKind)
    count: int = 1
    hosts: Sequence[str] = ()
    resource_class: str | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A goal, in one cluster or everywhere, within limits; `seconds` None for the time of a search.

    `closed`: consumers may go to closed hosts as well.
    """

    goal: Goal
    limits: PlanLimits
    cluster: str | None = None
    seconds: float | None = None
    closed: bool = False


class PlanSettings(NamedTuple):
    """The settings of all plans: traits of hosts for a `purpose`, and `watched_questions` about kinds."""

    purpose: Sequence[str] = ()
    watched_questions: Sequence[Question] = ()


NO_SETTINGS = PlanSettings()
