"""Gangs of a cluster: how many members have places, which wait for the others, and for how long.

A member that waits has its place like any pod; it is only not bound yet. Nothing runs by the clock: a request
that places a pod, or asks where one fits, ends waiting in time, for all waiting members of a gang at once.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.common.clock import agreed_now, server_now
from placement.common.gang import Gang, Membership, gang_of
from placement.engine.domain.errors import Conflict
from placement.pods.decide.reading import PodDocument
from placement.pods.state.model import RecordedPod
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns


class Waiting(NamedTuple):
    """A pod that waits for its gang, and its node."""

    pod: RecordedPod
    node: NodeInfo


class GangWaits(Conflict):
    """A conflict: too few members of a gang have places, or could have any."""

    code = "gang_waits"


@dataclass(frozen=True, slots=True)
class GangStatus:
    """A state of gangs that must be whole together: members with places, the least, and members that wait.

    `ends` is when waiting ends for members, including members that left their places to come again.
    """

    gang: Gang
    counts: Mapping[str, int]
    least: Mapping[str, int]
    waiting: Sequence[Waiting]
    ends: Sequence[datetime.datetime]

    @property
    def is_whole(self) -> bool:
        """Return whether each of the gangs has enough members; a gang that is not known has none."""
        return not self._incomplete

    @property
    def _incomplete(self) -> list[str]:
        together = sorted(self.gang.together)
        return [name for name in together if self.counts.get(name, 0) < self.least.get(name, 1)]

    @property
    def lacking_members(self) -> str:
        """Return the gangs that have too few members, in words."""
        return ", ".join(
            f"gang {name} has {self.counts.get(name, 0)} of the {self.least.get(name, '?')} members it needs"
            for name in self._incomplete
        )

    @property
    def until(self) -> datetime.datetime:
        """Return when waiting ends: as soon as it does for the first member that waits."""
        return min(self.ends, default=server_now() + self.gang.waiting_time)

    def __str__(self) -> str:
        """Return the gangs with their numbers."""
        return ", ".join(
            f"{self.counts.get(name, 0)} of {self.least.get(name, '?')} of gang {name}"
            for name in sorted(self.gang.together)
        )


def standing_of(
    columns: NodeColumns,
    gang: Gang,
    memberships: Iterable[Membership | None] = (),
    gone: Collection[str] = (),
) -> GangStatus:
    """Return the status of the gang when members come and these consumers are gone."""
    counts: Counter[str] = Counter()
    least: dict[str, int] = {gang.name: gang.least}
    waiting: list[Waiting] = []
    ends: list[datetime.datetime] = []

    present = [*memberships]
    for node in columns.nodes:
        for pod in node.of_gangs:
            membership = pod.membership
            if membership is None or membership.gang not in gang.together:
                continue
            if membership.waits_until is not None:
                ends.append(membership.waits_until)
            if pod.consumer not in gone:
                present.append(membership)
                if membership.waits_until is not None:
                    waiting.append(Waiting(pod, node))
    for each in present:
        if each is not None and each.gang in gang.together:
            counts[each.gang] += 1
            least[each.gang] = max(least.get(each.gang, 0), each.least)
    return GangStatus(gang, counts, least, waiting, ends)


def overdue(nodes: Mapping[int, NodeInfo]) -> list[Waiting]:
    """Return the pods on these nodes, by host provider, that have waited long enough."""
    now = agreed_now()
    return [
        Waiting(pod, node)
        for node in nodes.values()
        for pod in node.waiting
        if pod.membership and pod.membership.waits_until and pod.membership.waits_until <= now
    ]


def gang_to_place(document: PodDocument) -> Gang | None:
    """Return the gang with which a pod is placed; None for a running pod, which is recorded in any case."""
    return None if document.host else gang_of(document.manifest, document.namespace)


def placed_together(
    documents: Mapping[int, PodDocument],
) -> Iterator[tuple[Gang | None, dict[int, PodDocument]]]:
    """Return groups of pods that are placed together, or single pods, in the order of the first of each."""
    units: dict[object, tuple[Gang | None, dict[int, PodDocument]]] = {}
    for number, document in documents.items():
        gang = gang_to_place(document)
        key: object = number if gang is None else gang.together
        units.setdefault(key, (gang, {}))[1][number] = document
    return iter(units.values())


def in_portions(documents: Mapping[int, PodDocument], most: int) -> Iterator[dict[int, PodDocument]]:
    """Yield up to `most` pods at a time; pods that are placed together are never split, even if more."""
    some: dict[int, PodDocument] = {}
    for _, members in placed_together(documents):
        if some and len(some) + len(members) > most:
            yield some
            some = {}
        some |= members
    if some:
        yield some


# The gangs asked for last are kept. Members are placed together in a trial, some milliseconds each, while
# kube-scheduler waits: larger gangs claim without a trial.
_MOST_GANGS = 100
_MOST_MEMBERS = 100
# kube-scheduler asks for each pod that waits at least every five minutes.
_LASTS_SECONDS = 600.0

_GangKey = tuple[str, frozenset[str]]


@dataclass(slots=True)
class _Known:
    """Members by uid, each with when it asked last, in seconds of a monotonic clock."""

    asked: dict[str, tuple[PodDocument, float]] = field(default_factory=dict)
    has_given_up: bool = False


class GivenUpGangs:
    """A memory of gangs that had no room for a member, by cluster and the gangs that are placed together."""

    def __init__(self) -> None:
        self._gangs: OrderedDict[_GangKey, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, cluster: str, gang: Gang, document: PodDocument) -> None:
        """Note that a member asks for a place. With a new member, a gang that gave up may fit after all."""
        key, now = (cluster, gang.together), time.monotonic()
        with self._lock:
            known = self._gangs.setdefault(key, _Known())
            self._gangs.move_to_end(key)
            if len(self._gangs) > _MOST_GANGS:
                self._gangs.popitem(last=False)
            for uid in [uid for uid, (_, at) in known.asked.items() if now - at > _LASTS_SECONDS]:
                del known.asked[uid]
            if document.uid not in known.asked:
                known.has_given_up = False
            known.asked[document.uid] = document, now
            if len(known.asked) > _MOST_MEMBERS:
                del known.asked[next(iter(known.asked))]

    def set(self, cluster: str, gang: Gang, *, has_given_up: bool) -> None:
        """Note that a gang gave up, or that there is room for it."""
        with self._lock:
            known = self._gangs.get((cluster, gang.together))
            if known is not None:
                known.has_given_up = has_given_up

    def members(self, cluster: str, gang: Gang) -> Sequence[PodDocument]:
        """Return the members of a gang in the order in which they first asked, if it gave up; else none."""
        with self._lock:
            known = self._gangs.get((cluster, gang.together))
            if known is None or not known.has_given_up:
                return ()
            return tuple(member for member, _ in known.asked.values())
