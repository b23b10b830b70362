"""The event loop of a worker: it receives all requests, and threads of some lanes answer them."""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from placement.common.probes import METHODS, PATHS, Probe
from placement.http.gate import Callers, KnownCredentials
from placement.http.worker import exchange as refusals
from placement.http.worker.connection import Connection, Phase
from placement.http.worker.exchange import Exchange, HttpRefusal, RequestRefused, State
from placement.http.worker.lanes import Lanes, WorkerLimits, room_for_connections
from placement.http.worker.tls import Tls
from placement.metrics.catalog import CONNECTIONS, REFUSED

# The register of a worker: the phase of each of its connections, and how many bytes it keeps.


class ConnectionTable:
    """A register of connections by phase, oldest first, and of the bytes of the requests that they keep."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._counted: dict[Connection, int] = {}
        self._held = 0
        self._draining: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._senders: dict[Connection, None] = {}
        self._readers: dict[Connection, None] = {}
        self._lists = {
            Phase.DRAIN: self._draining,
            Phase.IDLE: self._idle,
            Phase.HEAD: self._senders,
            Phase.BODY: self._senders,
            Phase.SENDING: self._readers,
        }
        self._listed: dict[Connection, dict[Connection, None]] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._counted

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._counted))

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        self._counted[connection] = 0
        self.note(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._held -= self._counted.pop(connection, 0)
        self._list(connection, None)

    def note(self, connection: Connection) -> None:
        """Take down the phase and the bytes of a connection that is not closed; they may have changed."""
        if connection not in self._counted:
            return
        held = connection.held
        self._held += held - self._counted[connection]
        self._counted[connection] = held
        self._list(connection, self._lists.get(connection.phase))

    def greediest(self) -> Connection | None:
        """Return the sender to drop when too many bytes are kept: the one with the most, if that is much.

        A client that sends a lot and stalls must not keep others from sending little.
        """
        if self._held <= self._limits.most_buffered_bytes:
            return None
        most = max(self._senders, key=self._counted.__getitem__, default=None)
        return most if most and self._counted[most] > self._limits.body_in_memory_bytes else None

    def oldest_of_many(self) -> Connection | None:
        """Return the connection to drop when too many are sending."""
        return next(iter(self._senders)) if len(self._senders) > self._limits.most_senders else None

    def least_useful(self) -> Connection | None:
        """Return the connection that is closed with the least harm; None if all are being worked for."""
        lists = self._draining, self._idle, self._senders, self._readers
        return next((next(iter(each)) for each in lists if each), None)

    def _list(self, connection: Connection, wanted: dict[Connection, None] | None) -> None:
        found = self._listed.get(connection)
        if found is wanted:
            return
        if found is not None:
            del found[connection], self._listed[connection]
        if wanted is not None:
            wanted[connection] = None
            self._listed[connection] = wanted


Probes = Callable[[str, str, str, str], Probe]
# Operators know it by the name of the worker.
LOG = logging.getLogger("placement.http.worker.worker")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LOOK_EVERY_SECONDS = 0.5
_GONE_BEFORE_ACCEPTED = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EINTR)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class EventLoop:
    """A loop over all connections of a process, in one thread that never waits for a single one of them."""

    def __init__(
        self,
        configuration: Any,
        limits: WorkerLimits,
        application: Any,
        takes_more: Callable[[], bool],
        on_look: Callable[[], object],
        tls: Tls | None = None,
    ) -> None:
        """Take gunicorn's `configuration`, and the WSGI `application`.

        `takes_more`: whether connections may stay for another request. `on_look` is called now and then.
        """
        self._configuration = configuration
        self._limits = limits
        self._application = application
        # Our applications have a function that answers probes; others get probes as ordinary requests.
        self._probes: Probes | None = getattr(application, "extensions", {}).get("placement_probes")
        self._takes_more = takes_more
        self._on_look = on_look
        self._tls = tls
        self._lanes = Lanes(limits)
        self._selector = selectors.DefaultSelector()
        self._register = ConnectionTable(limits)
        # Listeners that have to wait until the system can give more connections.
        self._paused: list[Any] = []
        self._callers = Callers(limits.requests_per_caller)
        self._known = KnownCredentials()
        self._reports: deque[tuple[Exchange, State]] = deque()
        self._woken = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._selector.register(self._wake_reader, READ, self._take_reports)
        self._most_connections = room_for_connections(limits.most_connections)
        self._keep_alive_seconds = limits.keep_alive_seconds
        self._looked = 0.0

    def __len__(self) -> int:
        return len(self._register)

    def wake_by(self, pipe: int) -> None:
        """Have a byte in this pipe, which does not block, end the waiting."""

        def heard() -> None:
            with suppress(BlockingIOError):
                os.read(pipe, 4096)

        self._selector.register(pipe, READ, heard)

    def listen(self, listener: Any) -> None:
        """Take connections of a listener that does not block."""
        self._selector.register(listener, READ, lambda: self._accept(listener))

    def finish(self, listeners: Iterable[Any]) -> None:
        """Take no more connections, and let idle ones go soon."""
        for listener in listeners:
            # To close now would reset connections that the system has accepted already.
            while self._accept(listener):
                pass
            self._pause(listener)
            listener.close()
        self._paused.clear()
        self._keep_alive_seconds = self._limits.linger_seconds
        linger = time.monotonic() + self._limits.linger_seconds
        for connection in self._register:
            if connection.phase is Phase.IDLE:
                connection.deadline = min(connection.deadline, linger)
            elif connection.exchange is not None and connection.exchange.lane is self._lanes.events:
                # A caller that waits for changes counts as gone, so nothing waits for it, but it is answered.
                connection.exchange.keep_alive = False
                with suppress(OSError):
                    connection.wire.shutdown(socket.SHUT_RD)

    def turn(self) -> None:
        """Wait for something to happen, at most until the next look at the deadlines."""
        for key, events in self._selector.select(_LOOK_EVERY_SECONDS):
            if isinstance(key.data, Connection):
                self._happened(key.data, events)
            else:
                key.data()
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY_SECONDS:
            self._looked = now
            self._on_look()
            CONNECTIONS.set(len(self._register))
            self._lanes.write_down()
            self._look_at_deadlines(now)
            while self._paused:
                self.listen(self._paused.pop())

    @contextmanager
    def _alone(self, connection: Connection) -> Iterator[None]:
        """End this connection, and no other, if the block fails."""
        try:
            yield
        except OSError as error:
            LOG.debug("a connection broke: %s", error)
            self._give_up(connection)
        except Exception:
            LOG.exception("a connection of %s failed", connection.address)
            self._give_up(connection)

    def _happened(self, connection: Connection, events: int) -> None:
        # An earlier event of the same turn may have closed it.
        if connection not in self._register:
            return
        with self._alone(connection):
            if connection.phase is Phase.BUSY:
                # The event has to wait for the answer; the selector would report it again and again.
                self._watch(connection, 0)
            elif events & connection.watched & WRITE or connection.phase is Phase.SENDING:
                self._send(connection)
            elif connection.receive():
                self._received(connection)

    def _received(self, connection: Connection) -> None:
        if connection.phase is Phase.DRAIN:
            if connection.ended:
                self._drop(connection)
            return
        try:
            complete = connection.advance()
        except RequestRefused as refused:
            self._refuse(connection, refused.refusal)
            return
        self._register.note(connection)
        if not self._has_room_for(connection):
            return
        if complete:
            self._dispatch(connection)
        elif connection.ended:
            self._drop(connection)
        else:
            self._watch(connection, READ)
            if (oldest := self._register.oldest_of_many()) is not None:
                self._refuse(oldest, refusals.NO_ROOM)

    def _has_room_for(self, connection: Connection) -> bool:
        """Refuse senders while too many bytes are kept; return whether this connection is not among them."""
        stays = True
        while (greediest := self._register.greediest()) is not None:
            self._refuse(greediest, refusals.NO_ROOM)
            stays = stays and greediest is not connection
        return stays

    def _watch(self, connection: Connection, events: int) -> None:
        if connection.watched == events:
            return
        if not connection.watched:
            self._selector.register(connection.wire, events, connection)
        elif events:
            self._selector.modify(connection.wire, events, connection)
        else:
            # The selector itself forgets a socket that it cannot change.
            with suppress(KeyError):
                self._selector.unregister(connection.wire)
        connection.watched = events

    def _look_at_deadlines(self, now: float) -> None:
        for job in self._lanes.overdue(now):
            assert isinstance(job, Exchange)
            with self._alone(job.connection):
                self._release(job)
                self._refuse(job.connection, refusals.TOO_LATE)
        for connection in [each for each in self._register if each.deadline <= now]:
            with self._alone(connection):
                self._is_late(connection)

    def _is_late(self, connection: Connection) -> None:
        if connection.phase is Phase.HEAD:
            self._refuse(connection, refusals.HEAD_TOO_SLOW)
        elif connection.phase is Phase.BODY:
            self._refuse(connection, refusals.BODY_TOO_SLOW)
        elif connection.phase is Phase.SENDING:
            self._abandon(connection)
        elif connection.phase is Phase.IDLE:
            self._drain(connection)
        elif connection.phase is Phase.DRAIN:
            self._drop(connection)

    # -- connections ----------------------------------------------------------------------------------

    def _pause(self, listener: Any) -> None:
        """Take no connections of the listener until the next look at the deadlines."""
        if listener not in self._paused:
            self._selector.unregister(listener)
            self._paused.append(listener)

    def _accept(self, listener: Any) -> bool:
        """Take one connection; False if there is none."""
        try:
            wire, address = listener.accept()
        except OSError as error:
            if error.errno not in _GONE_BEFORE_ACCEPTED:
                self._cannot_accept(listener, error)
            return False
        if len(self._register) >= self._most_connections:
            self._make_room()
        if self._tls is not None:
            try:
                wire = self._tls.wrap(wire)
            except OSError as error:
                LOG.debug("a connection broke: %s", error)
                wire.close()
                return True
        connection = Connection(wire, address, listener.getsockname(), self._configuration, self._limits)
        self._register.add(connection)
        # Most clients have sent their request by now.
        self._happened(connection, READ)
        with self._alone(connection):
            if connection in self._register and connection.phase is Phase.IDLE:
                self._watch(connection, READ)
        return True

    def _cannot_accept(self, listener: Any, error: OSError) -> None:
        if error.errno in _EXHAUSTED and self._make_room():
            return
        LOG.warning("no connection can be accepted: %s", error)
        # The selector would report the waiting connection at once, again and again.
        self._pause(listener)

    def _make_room(self) -> bool:
        """Close the least useful connection; False if none is closed yet."""
        connection = self._register.least_useful()
        if connection is None:
            return False
        self._give_up(connection)
        return connection not in self._register

    def _give_up(self, connection: Connection) -> None:
        """Drop the connection; a thread ends first what it may be producing for it."""
        if connection.phase is Phase.SENDING:
            self._abandon(connection)
        elif connection.phase is Phase.BUSY and connection.exchange is not None:
            connection.exchange.abandoned = True
        else:
            self._drop(connection)

    def _drop(self, connection: Connection, *, aborting: bool = False) -> None:
        self._register.discard(connection)
        self._watch(connection, 0)
        if aborting:
            connection.abort()
        else:
            connection.close()

    def _refuse(self, connection: Connection, refusal: HttpRefusal) -> None:
        """Answer without asking the application, and close."""
        LOG.info("refused a request of %s: %d %s", connection.address, refusal.status, refusal.message)
        REFUSED.labels(refusal.status).inc()
        self._end_with(connection, refusals.written(refusal))

    def _end_with(self, connection: Connection, answer: bytes) -> None:
        """Send a short answer, and close."""
        try:
            connection.wire.send(answer)
        except OSError:
            self._drop(connection)
        else:
            self._drain(connection)

    def _drain(self, connection: Connection) -> None:
        try:
            connection.drain()
        except OSError:
            self._drop(connection)
            return
        self._register.note(connection)
        if connection.ended:
            self._drop(connection)
        else:
            self._watch(connection, READ)

    # -- requests -------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection) -> None:
        """Hand a complete request to its lane."""
        request = connection.request
        assert request is not None
        assert connection.received is not None
        if self._probes is not None and request.path in PATHS and request.method in METHODS:
            self._answer_probe(connection, request, self._probes)
            return
        exchange = Exchange(
            connection,
            request,
            connection.received,
            self._limits,
            self._known,
            self._application,
            self._report,
        )
        exchange.keep_alive = self._takes_more() and not connection.ended
        exchange.lane = self._lanes.of(request.method, request.path)
        # Health checks are answered however many requests of the caller are in work.
        if exchange.lane is not self._lanes.status:
            exchange.is_counted = self._callers.enter(exchange.counts_for)
            if not exchange.is_counted:
                self._refuse(connection, refusals.TOO_MANY_OF_CALLER)
                return
        if not exchange.lane.submit(exchange):
            self._release(exchange)
            self._refuse(connection, refusals.TOO_MANY)
            return
        connection.exchange = exchange
        self._is_busy(connection)

    def _answer_probe(self, connection: Connection, request: Any, probes: Probes) -> None:
        """Answer here and now: probes wait for no thread, whatever the others do."""
        accept = next((value for name, value in request.headers if name == "ACCEPT"), "")
        probe = probes(request.method, request.path, request.query or "", accept)
        self._end_with(connection, refusals.probe_written(probe))

    def _is_busy(self, connection: Connection) -> None:
        """Leave the connection to threads; the event loop waits for their report."""
        connection.phase = Phase.BUSY
        connection.deadline = float("inf")
        self._register.note(connection)

    def _report(self, exchange: Exchange, state: State) -> None:
        """Let the event loop go on with the connection; called by the threads of the lanes."""
        self._reports.append((exchange, state))
        if not self._woken:
            self._woken = True
            with suppress(BlockingIOError):
                os.write(self._wake_writer, b"\0")

    def _take_reports(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)
        self._woken = False
        while self._reports:
            exchange, state = self._reports.popleft()
            with self._alone(exchange.connection):
                self._go_on(exchange, state)

    def _go_on(self, exchange: Exchange, state: State) -> None:
        connection = exchange.connection
        if state is State.BLOCKED and exchange.abandoned:
            self._resume(exchange)
            return
        if state is State.BLOCKED:
            connection.phase = Phase.SENDING
            connection.deadline = exchange.outgoing.deadline()
            self._register.note(connection)
            self._watch(connection, WRITE)
            return
        self._release(exchange)
        if state is State.BROKEN:
            self._drop(connection, aborting=True)
        elif not exchange.keep_alive:
            self._drain(connection)
        else:
            connection.rest(self._keep_alive_seconds)
            # The next request may be here already.
            self._received(connection)

    def _release(self, exchange: Exchange) -> None:
        exchange.connection.exchange = None
        if exchange.is_counted:
            self._callers.leave(exchange.counts_for)

    def _send(self, connection: Connection) -> None:
        exchange = connection.exchange
        assert exchange is not None
        try:
            sent = exchange.outgoing.flush()
        except OSError:
            self._abandon(connection)
            return
        if sent:
            self._resume(exchange)
        else:
            connection.deadline = exchange.outgoing.deadline()

    def _abandon(self, connection: Connection) -> None:
        """Have a thread end what produces an answer that the client does not take."""
        exchange = connection.exchange
        assert exchange is not None
        exchange.abandoned = True
        self._resume(exchange)

    def _resume(self, exchange: Exchange) -> None:
        self._watch(exchange.connection, 0)
        self._is_busy(exchange.connection)
        exchange.lane.resume(exchange)
