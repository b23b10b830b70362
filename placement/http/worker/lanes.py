"""Threads that answer requests, in lanes: jobs of one lane never take the threads of another."""

from __future__ import annotations

import logging
import re
import resource
import signal
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from placement.common.documents import MOST_FORM_BYTES
from placement.common.probes import OPEN_PATHS
from placement.metrics.catalog import IN_LANES

LOG = logging.getLogger(__name__)
_OF_FOLLOWED_CHANGES = 1
# Forest and images keep one each for good; health, removal of old records and [capacity] watch take one each.
_BESIDE_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of a worker for the clients of its connections, in seconds, bytes and numbers.

    A limit without an option is fixed.
    """

    # Options of the group [api].
    largest_body_bytes: int = 32 * 2**20
    request_seconds: float = 30
    requests_per_caller: int = 256

    # A form of the pages, which clients without a token may send.
    largest_form_bytes: int = MOST_FORM_BYTES
    head_seconds: float = 10
    body_seconds: float = 60
    keep_alive_seconds: float = 75
    # A request line may hold a query string of 64 KiB.
    largest_line_bytes: int = 68 * 1024
    largest_head_bytes: int = 136 * 1024
    # For all requests together that are being received or wait.
    most_buffered_bytes: int = 256 * 2**20
    # For a body kept in memory; longer bodies go to a temporary file.
    body_in_memory_bytes: int = 64 * 1024
    most_senders: int = 512
    most_connections: int = 4096
    # An answer may take so long, and longer if the client takes at least this much per second.
    send_seconds: float = 60
    slowest_reader_bytes_per_second: int = 100_000
    # How long a refused client may go on sending; it is not read.
    drain_seconds: float = 2
    # How long a stopping worker waits for requests that are on their way over idle connections.
    linger_seconds: float = 2
    orphan_seconds: float = 2

    # The database pool has a connection for each of these, see `connections`.
    status_threads: int = 3
    read_threads: int = 12
    write_threads: int = 8
    # More than may wait for changes (audit.routes), also of one caller, so that others are refused at once.
    event_threads: int = 12
    # Anyone may sign in, so a slow identity service costs no other lane a thread.
    sign_in_threads: int = 4
    most_waiting: int = 512

    @property
    def connections(self) -> int:
        """Return how many connections to the database a process may hold at once, so that none is waited for.

        Requests that follow changes look at the database one after another, so they hold one together.
        """
        threads = self.read_threads + self.write_threads + self.status_threads + self.sign_in_threads
        return threads + _OF_FOLLOWED_CHANGES + _BESIDE_REQUESTS


class Runnable(Protocol):
    """A base of jobs as lanes know them; each is the work for a request.

    It counts for a caller, and has its turn among the jobs with one token. After the deadline it is too late.
    """

    counts_for: Hashable
    turn: Hashable
    deadline: float

    def run(self) -> bool:
        """Work on it; return whether it has to wait for a thread of its caller."""
        ...


Job = TypeVar("Job", bound=Runnable)


class Lane(Generic[Job]):
    """A group of threads and the exchanges that wait for them; callers take turns.

    A caller is a user, whatever tokens it has, or an address of callers that are not known. One caller never
    gets the last quarter of the threads, which others find free. Inside its share its tokens take turns.
    """

    def __init__(self, name: str, threads: int, most_waiting: int) -> None:
        self._name = name
        self._threads = threads
        self._share = max(1, threads - max(1, threads // 4))
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        # By caller and token; the one whose turn is next comes first.
        self._waiting: OrderedDict[Hashable, OrderedDict[Hashable, deque[Job]]] = OrderedDict()
        self._count = 0
        self._running: Counter[Hashable] = Counter()
        self._idle = self._started = 0
        self._waiting_figure = IN_LANES.labels(name, "waiting")
        self._running_figure = IN_LANES.labels(name, "running")

    def submit(self, job: Job, *, again: bool = False) -> bool:
        """Let the job wait for its turn; False if too many wait already.

        One that was interrupted comes `again`, before the others of its caller, and is always taken.
        """
        with self._changed:
            if self._count >= self._most_waiting and not again:
                return False
            jobs = self._line_of(job)
            if again:
                jobs.appendleft(job)
            else:
                jobs.append(job)
            self._count += 1
            if self._idle:
                self._wake()
            elif self._started < self._threads:
                # A worker that stops does not wait for threads that hang.
                name = f"{self._name}-{self._started + 1}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                try:
                    thread.start()
                    self._started += 1
                except RuntimeError as error:
                    # The job waits for the threads that there are, or for the next attempt.
                    LOG.error("%s: %s", name, error)
        return True

    def move(self, job: Job, caller: Hashable) -> bool:
        """Count a running job for this caller from now on; False if it is beyond the share of the caller.

        Then the job has to end, and `run` to return that it waits.
        """
        with self._changed:
            self._has_ended(job.counts_for)
            job.counts_for = caller
            self._running[caller] += 1
            # Jobs of the former caller may wait beside threads that are idle.
            if self._idle and self._count:
                self._wake()
            return self._running[caller] <= self._share

    def overdue(self, now: float) -> list[Job]:
        """Remove and return the jobs that waited past their deadline."""
        with self._changed:
            turns = [jobs for turns in self._waiting.values() for jobs in turns.values()]
            found = [job for jobs in turns for job in jobs if job.deadline <= now]
            for job in found:
                self._waiting[job.counts_for][job.turn].remove(job)
                self._count -= 1
        return found

    def write_down(self) -> None:
        """Write into metrics how many jobs wait and run."""
        self._waiting_figure.set(self._count)
        self._running_figure.set(self._running.total())

    def _work(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    self._idle += 1
                    self._changed.wait()
            waits = False
            try:
                waits = job.run()
            finally:
                with self._changed:
                    self._has_ended(job.counts_for)
                    if waits:
                        self._line_of(job).append(job)
                        self._count += 1
                # A thread that waits keeps no request.
                del job

    def _line_of(self, job: Job) -> deque[Job]:
        """Return the waiting jobs of the same caller and token."""
        return self._waiting.setdefault(job.counts_for, OrderedDict()).setdefault(job.turn, deque())

    def _wake(self) -> None:
        self._idle -= 1
        self._changed.notify()

    def _has_ended(self, caller: Hashable) -> None:
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]

    def _next(self) -> Job | None:
        """Remove and return a job of the next caller that may have one more thread; None if there is none."""
        for caller, turns in list(self._waiting.items()):
            if self._running[caller] >= self._share:
                continue
            for turn, jobs in list(turns.items()):
                if not jobs:
                    del turns[turn]
                    continue
                self._waiting.move_to_end(caller)
                turns.move_to_end(turn)
                self._count -= 1
                self._running[caller] += 1
                return jobs.popleft()
            del self._waiting[caller]
        return None


# Requests with this path wait for changes.
_EVENTS_PATH = "/ext/v1/events"
# Forms with this path wait for the identity service.
_SIGN_IN_PATH = "/ui/sign-in"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Requests with these paths have a body, but change nothing.
_READING_POSTS = re.compile(
    r"/ext/v1/(clusters/[^/]+/(pods/(preemption|preview|translation)|extender/prioritize)"
    r"|flavors/[^/]+|capacity|allocation_candidates|plans)"
    r"|/ui/(why|room|moves)$"
)


def changes_nothing(method: str, path: str) -> bool:
    """Return whether a request cannot change anything; the path is without its query."""
    return method in _READING_METHODS or (method == "POST" and bool(_READING_POSTS.search(path)))


class Lanes(Generic[Job]):
    """The lanes of a process."""

    def __init__(self, limits: WorkerLimits) -> None:
        most = limits.most_waiting
        self.status: Lane[Job] = Lane("status", limits.status_threads, most)
        self.reads: Lane[Job] = Lane("reads", limits.read_threads, most)
        self.writes: Lane[Job] = Lane("writes", limits.write_threads, most)
        self.events: Lane[Job] = Lane("events", limits.event_threads, most)
        self.sign_ins: Lane[Job] = Lane("sign_ins", limits.sign_in_threads, most)
        self.all = (self.status, self.reads, self.writes, self.events, self.sign_ins)

    def of(self, method: str, path: str) -> Lane[Job]:
        """Return the lane of a request, by what it may have to wait for; the path may be quoted."""
        path = unquote(path)
        reading = method in _READING_METHODS
        if reading and path in OPEN_PATHS:
            return self.status
        if reading and path.endswith(_EVENTS_PATH):
            return self.events
        if changes_nothing(method, path):
            return self.reads
        if method == "POST" and path.endswith(_SIGN_IN_PATH):
            return self.sign_ins
        return self.writes


_FILES_FOR_OTHERS = 256


def room_for_connections(wanted: int) -> int:
    """Raise the limit of open files; return how many connections it allows. A body may need a file, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + _FILES_FOR_OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (soft - _FILES_FOR_OTHERS) // 2))


def end_in_any_case(seconds: float) -> None:
    """End the process a second after `seconds`, even if no thread lets the others run."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
