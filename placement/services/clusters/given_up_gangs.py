"""Gangs that gave up, and the members that asked for a place lately, as one process remembers them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.dialects.koordinator.pod.gang import Gang
from placement.services.clusters.pod_documents import PodDocument

# The gangs asked for last are kept. Members are placed together in a trial, some milliseconds each, while
# kube-scheduler waits: larger gangs claim without a trial.
_MOST_GANGS = 100
_MOST_MEMBERS = 100
# kube-scheduler asks for each pod that waits at least every five minutes.
_LASTS_SECONDS = 600.0

_Key = tuple[str, frozenset[str]]


class _Asked(NamedTuple):
    """A member, and when it asked last, in seconds of a monotonic clock."""

    member: PodDocument
    at: float


@dataclass(slots=True)
class _Known:
    asked: dict[str, _Asked] = field(default_factory=dict)
    has_given_up: bool = False


class GivenUpGangs:
    """A memory of gangs that had no room for a member, by cluster and the gangs that are placed together."""

    def __init__(self) -> None:
        self._gangs: OrderedDict[_Key, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, cluster: str, gang: Gang, member: PodDocument) -> None:
        """Note that a member asks for a place. With a new member, a gang that gave up may fit after all."""
        key, now = (cluster, gang.together), time.monotonic()
        with self._lock:
            known = self._gangs.setdefault(key, _Known())
            self._gangs.move_to_end(key)
            if len(self._gangs) > _MOST_GANGS:
                self._gangs.popitem(last=False)
            for uid in [uid for uid, asked in known.asked.items() if now - asked.at > _LASTS_SECONDS]:
                del known.asked[uid]
            if member.uid not in known.asked:
                known.has_given_up = False
            known.asked[member.uid] = _Asked(member, now)
            if len(known.asked) > _MOST_MEMBERS:
                del known.asked[next(iter(known.asked))]

    def add(self, cluster: str, gang: Gang) -> None:
        """Note that a gang gave up."""
        self._set(cluster, gang, has_given_up=True)

    def discard(self, cluster: str, gang: Gang) -> None:
        """Note that there is room for a gang."""
        self._set(cluster, gang, has_given_up=False)

    def _set(self, cluster: str, gang: Gang, *, has_given_up: bool) -> None:
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
            return tuple(asked.member for asked in known.asked.values())
