"""Threads that answer requests, in lanes: jobs of one lane never take the threads of another."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from typing import Protocol
from urllib.parse import unquote

from placement.metrics.catalog import IN_LANES
from placement.operations.http.limits import Limits
from placement.services.health.probes import OPEN_PATHS

LOG = logging.getLogger(__name__)
# Its requests wait for changes.
_EVENTS_PATH = "/ext/v1/events"
# Its forms wait for the identity service.
_SIGN_IN_PATH = "/ui/sign-in"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# These have a body, but change nothing.
_READING_POSTS = re.compile(
    r"/ext/v1/(clusters/[^/]+/(pods/(preview|translation)|extender/prioritize)"
    r"|flavors/[^/]+|capacity|allocation_candidates|plans)"
    r"|/ui/(why|room|moves)$"
)


class Job(Protocol):
    """Something to do for a caller until a deadline, in seconds of time.monotonic()."""

    caller: Hashable
    deadline: float

    @property
    def begun(self) -> bool:
        """Whether it was interrupted; then its deadline no longer counts."""

    def run(self) -> None:
        """Do it; never raises."""


class Lane:
    """Some threads and the jobs that wait for them; callers take turns.

    One caller never gets the last quarter of the threads, which others find free.
    """

    def __init__(self, name: str, threads: int, most_waiting: int) -> None:
        self._name = name
        self._threads = threads
        self._share = max(1, threads - max(1, threads // 4))
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._count = 0
        self._running: Counter[Hashable] = Counter()
        self._idle = self._started = 0
        self._waiting_figure = IN_LANES.labels(name, "waiting")
        self._running_figure = IN_LANES.labels(name, "running")

    def submit(self, job: Job) -> bool:
        """Let the job wait for its turn; False if too many wait already."""
        with self._changed:
            if self._count >= self._most_waiting:
                return False
            self._enqueue(job, first=False)
        return True

    def resume(self, job: Job) -> None:
        """Let a job that was interrupted go on before the others of its caller."""
        with self._changed:
            self._enqueue(job, first=True)

    def overdue(self, now: float) -> list[Job]:
        """Remove the jobs whose deadline passed while they waited."""
        with self._changed:
            waiting = [job for jobs in self._waiting.values() for job in jobs]
            found = [job for job in waiting if job.deadline <= now and not job.begun]
            for job in found:
                self._waiting[job.caller].remove(job)
                self._count -= 1
        return found

    def write_down(self) -> None:
        """Write down how many jobs wait and run, for who watches."""
        self._waiting_figure.set(self._count)
        self._running_figure.set(self._running.total())

    def _enqueue(self, job: Job, *, first: bool) -> None:
        jobs = self._waiting.setdefault(job.caller, deque())
        if first:
            jobs.appendleft(job)
        else:
            jobs.append(job)
        self._count += 1
        if self._idle:
            self._idle -= 1
            self._changed.notify()
        elif self._started < self._threads:
            self._start_thread()

    def _start_thread(self) -> None:
        # A worker that stops does not wait for threads that hang.
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._started + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The job waits for the threads that there are, or for the next attempt.
            LOG.error("%s: %s", thread.name, error)
        else:
            self._started += 1

    def _work(self) -> None:
        while True:
            job = self._next()
            try:
                job.run()
            finally:
                with self._changed:
                    self._running[job.caller] -= 1
                    if not self._running[job.caller]:
                        del self._running[job.caller]
                # A thread that waits keeps no request.
                del job

    def _next(self) -> Job:
        with self._changed:
            while (job := self._taken()) is None:
                self._idle += 1
                self._changed.wait()
            return job

    def _taken(self) -> Job | None:
        for caller, jobs in list(self._waiting.items()):
            if not jobs:
                del self._waiting[caller]
            elif self._running[caller] < self._share:
                job = jobs.popleft()
                self._waiting.move_to_end(caller)
                self._count -= 1
                self._running[caller] += 1
                return job
        return None


class Lanes:
    """The lanes of a process."""

    def __init__(self, limits: Limits) -> None:
        most = limits.most_waiting
        self.status = Lane("status", limits.status_threads, most)
        self._reads = Lane("reads", limits.read_threads, most)
        self._writes = Lane("writes", limits.write_threads, most)
        self.events = Lane("events", limits.event_threads, most)
        self._sign_ins = Lane("sign_ins", limits.sign_in_threads, most)
        self._all = (self.status, self._reads, self._writes, self.events, self._sign_ins)

    def of(self, method: str, path: str) -> Lane:
        """Return the lane of a request, by what it may have to wait for; the path may be quoted."""
        path = unquote(path)
        reading = method in _READING_METHODS
        if reading and path in OPEN_PATHS:
            return self.status
        if reading and path.endswith(_EVENTS_PATH):
            return self.events
        if reading or (method == "POST" and _READING_POSTS.search(path)):
            return self._reads
        if method == "POST" and path.endswith(_SIGN_IN_PATH):
            return self._sign_ins
        return self._writes

    def write_down(self) -> None:
        """Write down how many jobs wait and run, for who watches."""
        for lane in self._all:
            lane.write_down()

    def overdue(self, now: float) -> list[Job]:
        """Remove from all lanes the jobs that waited too long."""
        return [job for lane in self._all for job in lane.overdue(now)]
