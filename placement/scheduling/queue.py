"""The queue of pods that wait for a place: which of them are tried next.

The order is priority, then age, as in kube-scheduler. Members of a gang are taken together. A pod that fits
nowhere is parked until something happens that could help. Then one pod of each shape is tried: if no node
takes it, the others of its shape need not be asked about, and if a node does, more of them follow.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from placement.scheduling.pending import PendingPod
from placement.sync.watched_objects import Key

# As kube-scheduler has them: podInitialBackoffSeconds and podMaxBackoffSeconds.
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 1.0, 10.0
# A pod that the service cannot take, for a fault that may be the service's, is tried as rarely as this.
QUARANTINE_SECONDS = 300.0
# What changes in the service alone wakes no pod, so parked ones are tried again after this time.
PARKED_SECONDS = 30.0
# A shape that is refused again and again waits longer, but less than the second within which pods are woken.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.6


class QueueState(StrEnum):
    """Where a pod is in the queue."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "unschedulable"
    GATED = "gated"
    TAKEN = "taken"


@dataclass(slots=True)
class QueuedPod:
    """A pod in the queue: how often it was tried, and since when it waits, in monotonic seconds."""

    pod: PendingPod
    number: int
    since: float
    attempts: int = 0
    failures: int = 0
    state: QueueState = QueueState.ACTIVE
    until: float = 0.0
    reason: str = ""

    @property
    def group(self) -> Hashable:
        """Return what is tried as one: the gangs placed together, or pods of one shape."""
        return self.pod.gang or self.pod.shape

    @property
    def rank(self) -> tuple[int, str, int]:
        return (-self.pod.priority, self.pod.created_at, self.number)


@dataclass(slots=True)
class _Group:
    """Pods that are tried as one: `refused_at` counts what happened, `budget` is how many are tried next."""

    members: dict[str, QueuedPod] = field(default_factory=dict)
    refused_at: int = -1
    reason: str = ""
    pause: float = _FIRST_PAUSE_SECONDS
    not_before: float = 0.0
    budget: int = 1
    parked: int = 0
    needs_pods: bool = False


class SchedulingQueue:
    """The queue; one thread uses it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[str, QueuedPod] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._active: list[tuple[tuple[int, str, int], str]] = []
        self._timed: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        # What happened, and what had happened when pods were taken: wakes, and pods that got a place.
        self._wakes = self._arrivals = 0
        self._tried_at = 0, 0
        self._parked_since = now()
        self._counts = dict.fromkeys(QueueState, 0)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def counts(self) -> dict[QueueState, int]:
        """Return how many pods are where."""
        return dict(self._counts)

    def uids_of(self, namespace: str, name: str) -> set[str]:
        """Return the uids of the pods of that name: the former one may still be here when the next one is."""
        return set(self._names.get((namespace, name), ()))

    def pods_of(self, group_key: Key) -> list[PendingPod]:
        """Return the pods that name a PodGroup."""
        return [queued.pod for queued in self._entries.values() if queued.pod.group_key == group_key]

    def get(self, uid: str) -> QueuedPod | None:
        """Return a pod in the queue, None if it is not in the queue."""
        return self._entries.get(uid)

    def put(self, pod: PendingPod) -> None:
        """Add a pod that came, or that changed, which is tried at once. A taken pod stays taken.

        A change that decides nothing, such as what the loop itself tells a pod, moves it nowhere.
        """
        queued = self._entries.get(pod.id.uid)
        if queued is None:
            queued = QueuedPod(pod, next(self._numbers), self._now())
            self._entries[pod.id.uid] = queued
            self._names.setdefault((pod.id.namespace, pod.id.name), set()).add(pod.id.uid)
            self._counts[queued.state] += 1
        else:
            is_same = _deciding(queued.pod) == _deciding(pod)
            if not is_same:
                self._leave(queued)
            queued.pod = pod
            if is_same:
                return
        group = self._groups.setdefault(queued.group, _Group())
        group.members[pod.id.uid] = queued
        group.parked += queued.state is QueueState.PARKED
        group.needs_pods |= pod.needs_pods
        if pod.gang:
            # A gang that was too few may be enough with this member.
            group.refused_at = -1
            for member in group.members.values():
                if member.state is QueueState.PARKED:
                    self._move(member, QueueState.ACTIVE)
        if queued.state is QueueState.GATED and not pod.other_gates:
            # The time behind gates of others is not the loop's.
            queued.since = self._now()
        if queued.state is not QueueState.TAKEN:
            self._move(queued, QueueState.GATED if pod.other_gates else QueueState.ACTIVE)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod that is bound, over or gone; return what was there."""
        queued = self._entries.pop(uid, None)
        if queued is not None:
            self._leave(queued)
            self._counts[queued.state] -= 1
            name = queued.pod.id.namespace, queued.pod.id.name
            self._names[name].discard(uid)
            if not self._names[name]:
                del self._names[name]
        return queued

    def _leave(self, queued: QueuedPod) -> None:
        group = self._groups.get(queued.group)
        if group is not None and group.members.pop(queued.pod.id.uid, None) is not None:
            group.parked -= queued.state is QueueState.PARKED
            if not group.members:
                del self._groups[queued.group]

    def wake(self) -> None:
        """Note that something happened which could help pods that wait."""
        self._wakes += 1
        self._parked_since = self._now()

    def park(self, queued: QueuedPod, reason: str) -> None:
        """Note that no node takes the pod as all is now."""
        queued.attempts += 1
        queued.reason = reason
        self._move(queued, QueueState.PARKED)
        group = self._groups[queued.group]
        tried_at = self._sum(group, *self._tried_at)
        if group.refused_at != tried_at:
            group.not_before = self._now() + group.pause
            group.pause = min(2 * group.pause, _LONGEST_PAUSE_SECONDS)
        group.refused_at, group.reason, group.budget = tried_at, reason, 1

    def _happened(self, group: _Group) -> int:
        """Return how much has happened that could help these pods."""
        return self._sum(group, self._wakes, self._arrivals)

    @staticmethod
    def _sum(group: _Group, wakes: int, arrivals: int) -> int:
        return wakes + arrivals if group.needs_pods else wakes

    def placed(self, queued: QueuedPod) -> None:
        """Note that a node takes the pod: more of its shape may fit, so twice as many are tried next."""
        queued.attempts += 1
        self._arrivals += 1
        group = self._groups.get(queued.group)
        if group is not None:
            group.refused_at, group.pause, group.not_before = -1, _FIRST_PAUSE_SECONDS, 0.0
            group.budget *= 2

    def back_off(self, queued: QueuedPod, reason: str, longest: float = LONGEST_BACKOFF_SECONDS) -> None:
        """Note that an attempt failed, not for want of room; the pod is tried again, less and less often."""
        queued.attempts += 1
        queued.failures += 1
        queued.reason = reason
        queued.until = self._now() + min(FIRST_BACKOFF_SECONDS * 2 ** min(queued.failures - 1, 16), longest)
        self._move(queued, QueueState.BACKOFF)
        heapq.heappush(self._timed, (queued.until, queued.number, queued.pod.id.uid))

    def put_back(self, queued: QueuedPod) -> None:
        """Put a pod back that was taken and not tried."""
        self._move(queued, QueueState.ACTIVE)

    def take(self, most: int) -> tuple[list[QueuedPod], list[QueuedPod]]:
        """Take the pods that are to be tried now, the most important and oldest first; gangs as a whole.

        Return also the pods that were parked without being tried, as nothing has changed since no node took
        another one of their shape.
        """
        now = self._now()
        if now - self._parked_since >= PARKED_SECONDS and self._counts[QueueState.PARKED]:
            self.wake()
        self._tried_at = self._wakes, self._arrivals
        self._end_backoff(now)
        self._unpark(now)
        taken_pods: list[QueuedPod] = []
        untried_pods: list[QueuedPod] = []
        while self._active and len(taken_pods) < most:
            _, uid = heapq.heappop(self._active)
            queued = self._entries.get(uid)
            if queued is None or queued.state is not QueueState.ACTIVE:
                continue
            group = self._groups[queued.group]
            if not queued.pod.gang and group.refused_at >= self._happened(group):
                queued.reason = group.reason
                self._move(queued, QueueState.PARKED)
                untried_pods.append(queued)
                continue
            taken_pods += self._taken_with(queued, group)
        return taken_pods, untried_pods

    def _taken_with(self, queued: QueuedPod, group: _Group) -> Iterator[QueuedPod]:
        members = [queued]
        if queued.pod.gang:
            members += [each for each in group.members.values() if each is not queued]
        for member in sorted(members, key=lambda each: each.rank):
            if member is queued or member.state in (QueueState.ACTIVE, QueueState.PARKED):
                self._move(member, QueueState.TAKEN)
                yield member

    def _end_backoff(self, now: float) -> None:
        while self._timed and self._timed[0][0] <= now:
            until, _, uid = heapq.heappop(self._timed)
            queued = self._entries.get(uid)
            if queued is not None and queued.state is QueueState.BACKOFF and queued.until == until:
                self._move(queued, QueueState.ACTIVE)

    def _unpark(self, now: float) -> None:
        """Move some pods of each shape that could have been helped since it was refused."""
        if not self._counts[QueueState.PARKED]:
            return
        for group in self._groups.values():
            if not group.parked or group.refused_at >= self._happened(group) or group.not_before > now:
                continue
            parked = [each for each in group.members.values() if each.state is QueueState.PARKED]
            most = len(parked) if parked[0].pod.gang else group.budget
            for queued in heapq.nsmallest(most, parked, key=lambda each: each.rank):
                self._move(queued, QueueState.ACTIVE)

    def _move(self, queued: QueuedPod, state: QueueState) -> None:
        self._counts[queued.state] -= 1
        self._counts[state] += 1
        self._groups[queued.group].parked += (state is QueueState.PARKED) - (
            queued.state is QueueState.PARKED
        )
        queued.state = state
        if state is QueueState.ACTIVE:
            heapq.heappush(self._active, (queued.rank, queued.pod.id.uid))

    def seconds_until_next(self) -> float | None:
        """Return after how many seconds some pod can be tried, None if none waits for time."""
        now, times = self._now(), []
        if self._counts[QueueState.ACTIVE]:
            return 0.0
        if self._timed:
            times.append(self._timed[0][0])
        if self._counts[QueueState.PARKED]:
            times.append(self._parked_since + PARKED_SECONDS)
            times += (
                group.not_before
                for group in self._groups.values()
                if group.parked and group.refused_at < self._happened(group)
            )
        return max(0.0, min(times) - now) if times else None


def _deciding(pod: PendingPod) -> tuple[object, ...]:
    """Return the parts of a pod with which it has to be tried again when they change."""
    return pod.shape, pod.gang, pod.other_gates
