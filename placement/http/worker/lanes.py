"""Threads that answer requests, in lanes: jobs of one lane never take the threads of another."""

from __future__ import annotations

import ctypes
import logging
import re
import resource
import signal
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from placement.common.documents import MOST_FORM_BYTES
from placement.common.probes import OPEN_PATHS
from placement.metrics.catalog import IN_LANES

# The limits that one worker process sets for the clients of its connections.


_OF_FOLLOWED_CHANGES = 1
# Forest and images keep one each for good; health, removal of old records and [capacity] watch take one each.
_BESIDE_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of a worker in seconds, bytes and numbers; a limit without an option is fixed."""

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
    # Anyone may sign in, so a slow identity service costs no other lane a thread. It needs no database.
    sign_in_threads: int = 4
    most_waiting: int = 512

    @property
    def connections(self) -> int:
        """Return how many connections to the database a process may hold at once, so that none is waited for.

        Requests that follow changes look at the database one after another, so they hold one together.
        """
        threads = self.read_threads + self.write_threads + self.status_threads
        return threads + _OF_FOLLOWED_CHANGES + _BESIDE_REQUESTS


LOG = logging.getLogger(__name__)
# Requests with this path wait for changes.
_EVENTS_PATH = "/ext/v1/events"
# Forms with this path wait for the identity service.
_SIGN_IN_PATH = "/ui/sign-in"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Requests with these paths have a body, but change nothing.
_READING_POSTS = re.compile(
    r"/ext/v1/(clusters/[^/]+/(pods/(preview|translation)|extender/prioritize)"
    r"|flavors/[^/]+|capacity|allocation_candidates|plans)"
    r"|/ui/(why|room|moves)$"
)


class Job(Protocol):
    """A piece of work for a caller until a deadline, in seconds of time.monotonic()."""

    caller: Hashable
    deadline: float

    @property
    def begun(self) -> bool:
        """Return whether it was interrupted; then its deadline no longer counts."""

    def run(self) -> None:
        """Do it; never raises."""


class Lane:
    """A group of threads and the jobs that wait for them; callers take turns.

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
        """Remove and return the jobs that waited past their deadline."""
        with self._changed:
            waiting = [job for jobs in self._waiting.values() for job in jobs]
            found = [job for job in waiting if job.deadline <= now and not job.begun]
            for job in found:
                self._waiting[job.caller].remove(job)
                self._count -= 1
        return found

    def write_down(self) -> None:
        """Write into metrics how many jobs wait and run."""
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

    def __init__(self, limits: WorkerLimits) -> None:
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
        """Write into metrics how many jobs wait and run in each lane."""
        for lane in self._all:
            lane.write_down()

    def overdue(self, now: float) -> list[Job]:
        """Remove from all lanes, and return, the jobs that waited too long."""
        return [job for lane in self._all for job in lane.overdue(now)]


# What a worker asks of the operating system for its process.


# prctl.h: the signal a process gets when its parent ends.
_PARENT_DEATH_SIGNAL = 1
_FILES_FOR_OTHERS = 256


def end_with_parent() -> None:
    """Have the system signal this process when the master is gone, however that happens; Linux only."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


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
