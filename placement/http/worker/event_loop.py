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
from placement.http.caller_limits import Callers
from placement.http.credentials import KnownCredentials
from placement.http.worker import refusals
from placement.http.worker.connection import Connection, Phase, path_of
from placement.http.worker.exchange import Exchange, State, note_refusal
from placement.http.worker.lanes import Lanes, WorkerLimits, room_for_connections
from placement.http.worker.refusals import HttpRefusal, RequestRefused
from placement.http.worker.tls import Tls
from placement.metrics.catalog import CONNECTIONS


class ConnectionTable:
    """A register of connections by phase, oldest first, and of the bytes of the requests that they keep."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._senders: dict[Connection, None] = {}
        # In the order in which closing them does harm; what is being worked for stands in none.
        self._lists: dict[Phase, dict[Connection, None]] = {
            Phase.DRAIN: {},
            Phase.IDLE: {},
            Phase.HEAD: self._senders,
            Phase.BODY: self._senders,
            Phase.SENDING: {},
        }
        # The list in which each connection stands, and its bytes.
        self._noted: dict[Connection, tuple[dict[Connection, None] | None, int]] = {}
        self._held = 0

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._noted

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._noted))

    def __len__(self) -> int:
        return len(self._noted)

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        self._noted[connection] = None, 0
        self.note(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        listed, held = self._noted.pop(connection, (None, 0))
        self._held -= held
        if listed is not None:
            del listed[connection]

    def note(self, connection: Connection) -> None:
        """Take down the phase and the bytes of a connection that is not closed; they may have changed."""
        if connection not in self._noted:
            return
        listed, before = self._noted[connection]
        wanted, held = self._lists.get(connection.phase), connection.held
        if wanted is not listed:
            if listed is not None:
                del listed[connection]
            if wanted is not None:
                wanted[connection] = None
        self._held += held - before
        self._noted[connection] = wanted, held

    def greediest(self) -> Connection | None:
        """Return the sender to drop when too many bytes are kept: the one with the most, if that is much.

        A client that sends a lot and stalls must not keep others from sending little.
        """
        if self._held <= self._limits.most_buffered_bytes:
            return None
        most = max(self._senders, key=lambda each: self._noted[each][1], default=None)
        return most if most and self._noted[most][1] > self._limits.body_in_memory_bytes else None

    def oldest_of_many(self) -> Connection | None:
        """Return the connection to drop when too many are sending."""
        return next(iter(self._senders)) if len(self._senders) > self._limits.most_senders else None

    def least_useful(self) -> Connection | None:
        """Return the connection that is closed with the least harm; None if all are being worked for."""
        return next((next(iter(each)) for each in self._lists.values() if each), None)


Probes = Callable[[str, str, str, str], Probe]
# Operators know it by the name of the worker.
LOG = logging.getLogger("placement.http.worker.worker")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LOOK_EVERY_SECONDS = 0.5
_GONE_BEFORE_ACCEPTED = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EINTR)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TOO_SLOW = {Phase.HEAD: refusals.HEAD_TOO_SLOW, Phase.BODY: refusals.BODY_TOO_SLOW}


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
        self._lanes: Lanes[Exchange] = Lanes(limits)
        # By connection, while threads or the client have it.
        self._exchanges: dict[Connection, Exchange] = {}
        self._selector = selectors.DefaultSelector()
        self._table = ConnectionTable(limits)
        # Listeners that have to wait until the system can give more connections.
        self._paused: list[Any] = []
        self._callers = Callers(limits.requests_per_caller)
        self._known = KnownCredentials()
        self._reports: deque[tuple[Exchange, State]] = deque()
        self._woken = False
        wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self.wake_by(wake_reader, self._take_reports)
        self._most_connections = room_for_connections(limits.most_connections)
        self._keep_alive_seconds = limits.keep_alive_seconds
        self._looked = 0.0

    def __len__(self) -> int:
        return len(self._table)

    def wake_by(self, pipe: int, then: Callable[[], object] = lambda: None) -> None:
        """Have a byte in this pipe, which does not block, end the waiting."""

        def heard() -> None:
            with suppress(BlockingIOError):
                os.read(pipe, 4096)
            then()

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
        for connection in self._table:
            if connection.phase is Phase.IDLE:
                connection.deadline = min(connection.deadline, linger)
                continue
            exchange = self._exchanges.get(connection)
            if exchange is not None and exchange.lane is self._lanes.events:
                # A caller that waits for changes counts as gone, so nothing waits for it, but it is answered.
                exchange.keep_alive = False
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
        if now - self._looked < _LOOK_EVERY_SECONDS:
            return
        self._looked = now
        self._on_look()
        CONNECTIONS.set(len(self._table))
        for lane in self._lanes.all:
            lane.write_down()
            for job in lane.overdue(now):
                with self._alone(job.connection):
                    self._release(job)
                    self._refuse(job.connection, refusals.TOO_LATE)
        for connection in self._table:
            if connection.deadline <= now:
                with self._alone(connection):
                    self._is_late(connection)
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

    # -- connections ----------------------------------------------------------------------------------

    def _accept(self, listener: Any) -> bool:
        """Take one connection; False if there is none."""
        try:
            wire, address = listener.accept()
        except OSError as error:
            is_there = error.errno not in _GONE_BEFORE_ACCEPTED
            if is_there and not (error.errno in _EXHAUSTED and self._make_room()):
                LOG.warning("no connection can be accepted: %s", error)
                # The selector would report the waiting connection at once, again and again.
                self._pause(listener)
            return False
        if len(self._table) >= self._most_connections:
            self._make_room()
        if self._tls is not None:
            try:
                wire = self._tls.wrap(wire)
            except OSError as error:
                LOG.debug("a connection broke: %s", error)
                wire.close()
                return True
        connection = Connection(wire, address, listener.getsockname(), self._configuration, self._limits)
        self._table.add(connection)
        # Most clients have sent their request by now.
        self._happened(connection, READ)
        with self._alone(connection):
            if connection in self._table and connection.phase is Phase.IDLE:
                self._watch(connection, READ)
        return True

    def _pause(self, listener: Any) -> None:
        """Take no connections of the listener until the next look at the deadlines."""
        if listener not in self._paused:
            self._selector.unregister(listener)
            self._paused.append(listener)

    def _make_room(self) -> bool:
        """Close the least useful connection; False if none is closed yet."""
        connection = self._table.least_useful()
        if connection is None:
            return False
        self._give_up(connection)
        return connection not in self._table

    def _happened(self, connection: Connection, events: int) -> None:
        # An earlier event of the same turn may have closed it.
        if connection not in self._table:
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
        self._table.note(connection)
        stays = True
        while (greediest := self._table.greediest()) is not None:
            self._make_way(greediest)
            stays = stays and greediest is not connection
        if not stays:
            return
        if complete:
            self._dispatch(connection)
        elif connection.ended:
            self._drop(connection)
        else:
            self._watch(connection, READ)
            if (oldest := self._table.oldest_of_many()) is not None:
                self._make_way(oldest)

    def _make_way(self, connection: Connection) -> None:
        """Refuse a connection for the sake of another one, which stays whatever happens."""
        with self._alone(connection):
            self._refuse(connection, refusals.NO_ROOM)

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

    def _is_late(self, connection: Connection) -> None:
        if connection.phase in _TOO_SLOW:
            self._refuse(connection, _TOO_SLOW[connection.phase])
        elif connection.phase is Phase.SENDING:
            self._abandon(connection)
        elif connection.phase is Phase.IDLE:
            self._drain(connection)
        elif connection.phase is Phase.DRAIN:
            self._drop(connection)

    def _refuse(self, connection: Connection, refusal: HttpRefusal) -> None:
        """Answer without asking the application, and close."""
        note_refusal(connection, self._known, refusal)
        self._drain(connection, refusals.written(refusal, connection.path))

    def _drain(self, connection: Connection, answer: bytes = b"") -> None:
        """Send a short answer, if any, and close once the client has read all."""
        try:
            if answer:
                connection.wire.send(answer)
            connection.drain()
        except OSError:
            self._drop(connection)
            return
        self._table.note(connection)
        if connection.ended:
            self._drop(connection)
        else:
            self._watch(connection, READ)

    def _drop(self, connection: Connection, *, aborting: bool = False) -> None:
        self._table.discard(connection)
        self._watch(connection, 0)
        connection.close(aborting=aborting)
        self._exchanges.pop(connection, None)

    def _give_up(self, connection: Connection) -> None:
        """Drop the connection; a thread ends first what it may be producing for it."""
        if connection.phase is Phase.SENDING:
            self._abandon(connection)
        elif connection.phase is Phase.BUSY and connection.is_in_work:
            self._exchanges[connection].abandoned = True
        else:
            self._drop(connection)

    # -- requests -------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection) -> None:
        """Hand a complete request to its lane."""
        request = connection.request
        assert request is not None
        if self._probes is not None and request.path in PATHS and request.method in METHODS:
            # Answered here and now: probes wait for no thread, whatever the others do.
            accept = next((value for name, value in request.headers if name == "ACCEPT"), "")
            probe = self._probes(request.method, request.path, request.query or "", accept)
            answer = refusals.whole_answer(probe.status, probe.headers, probe.body.encode())
            self._drain(connection, answer)
            return
        exchange = Exchange(connection, self._known, self._callers, self._application, self._report)
        exchange.keep_alive = self._takes_more() and not connection.ended
        exchange.lane = self._lanes.of(request.method, path_of(request))
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
        self._exchanges[connection], connection.is_in_work = exchange, True
        self._is_busy(connection)

    def _is_busy(self, connection: Connection) -> None:
        """Leave the connection to threads; the event loop waits for their report."""
        connection.phase = Phase.BUSY
        connection.deadline = float("inf")
        self._table.note(connection)

    def _report(self, exchange: Exchange, state: State) -> None:
        """Let the event loop go on with the connection; called by the threads of the lanes."""
        self._reports.append((exchange, state))
        if not self._woken:
            self._woken = True
            with suppress(BlockingIOError):
                os.write(self._wake_writer, b"\0")

    def _take_reports(self) -> None:
        self._woken = False
        while self._reports:
            exchange, state = self._reports.popleft()
            connection = exchange.connection
            with self._alone(connection):
                if state is State.BLOCKED and exchange.abandoned:
                    self._resume(exchange)
                    continue
                if state is State.BLOCKED:
                    connection.phase = Phase.SENDING
                    connection.deadline = exchange.outgoing.deadline()
                    self._table.note(connection)
                    self._watch(connection, WRITE)
                    continue
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
        self._exchanges.pop(exchange.connection, None)
        exchange.connection.is_in_work = False
        if exchange.is_counted:
            self._callers.leave(exchange.counts_for)

    def _send(self, connection: Connection) -> None:
        exchange = self._exchanges[connection]
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
        exchange = self._exchanges[connection]
        exchange.abandoned = True
        self._resume(exchange)

    def _resume(self, exchange: Exchange) -> None:
        self._watch(exchange.connection, 0)
        self._is_busy(exchange.connection)
        exchange.lane.submit(exchange, again=True)
