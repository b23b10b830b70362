"""One request and its answer, produced by threads of a lane as fast as the client takes it."""

from __future__ import annotations

import contextvars
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum, auto
from itertools import islice
from typing import Any
from wsgiref.types import WSGIApplication

from gunicorn.http import wsgi
from gunicorn.http.message import Request
from gunicorn.util import unquote_to_wsgi_str
from oslo_context import context as log_context
from oslo_context.context import RequestContext

from placement.http import caller_limits
from placement.http.credentials import HEADERS, KnownCredentials, digest, digest_of
from placement.http.worker.connection import Connection, path_of
from placement.http.worker.lanes import Lane, WorkerLimits, changes_nothing
from placement.http.worker.refusals import FAILED, TOO_LATE, HttpRefusal, written
from placement.metrics.catalog import REFUSED

LOG = logging.getLogger(__name__)
# Operators know these lines by the name of the worker.
_REFUSALS = logging.getLogger("placement.http.worker.worker")


class Outgoing:
    """A stand-in for the socket where gunicorn writes an answer; it does not wait for the client."""

    def __init__(self, wire: socket.socket, limits: WorkerLimits) -> None:
        self._wire = wire
        self._limits = limits
        self._buffers: deque[memoryview] = deque()
        self.waiting = 0
        self._sent = 0
        # The seconds of former waits for the client, and the begin of the present one.
        self._waited = 0.0
        self._waits_since: float | None = None

    def sendall(self, data: bytes) -> None:
        """Keep the bytes until they are flushed."""
        if data:
            self._buffers.append(memoryview(data))
            self.waiting += len(data)

    send = sendall

    def flush(self) -> bool:
        """Send as much as the client takes now; True if that was everything. Raises OSError."""
        while self._buffers:
            try:
                self._has_sent(self._wire.sendmsg(list(islice(self._buffers, _MOST_BUFFERS))))
            except (BlockingIOError, InterruptedError):
                if self._waits_since is None:
                    self._waits_since = time.monotonic()
                return False
        if self._waits_since is not None:
            self._waited += time.monotonic() - self._waits_since
            self._waits_since = None
        return True

    def deadline(self) -> float:
        """Return when the client must have taken the rest, in seconds of time.monotonic()."""
        allowed = self._limits.send_seconds + self._sent / self._limits.slowest_reader_bytes_per_second
        return (self._waits_since or time.monotonic()) + allowed - self._waited

    def _has_sent(self, count: int) -> None:
        self._sent += count
        self.waiting -= count
        while self._buffers and count >= len(self._buffers[0]):
            count -= len(self._buffers.popleft())
        if count:
            self._buffers[0] = self._buffers[0][count:]


_MOST_BUFFERS = 64
_TOGETHER_BYTES = 16 * 1024


class State(Enum):
    """A state of an exchange, by which the event loop goes on with it."""

    BLOCKED = auto()
    ANSWERED = auto()
    BROKEN = auto()


class Exchange:
    """A complete request in work. A thread may leave it while the client reads slowly; another continues."""

    def __init__(
        self,
        connection: Connection,
        known: KnownCredentials,
        callers: caller_limits.Callers,
        application: WSGIApplication,
        report: Callable[[Exchange, State], None],
    ) -> None:
        assert connection.request is not None
        assert connection.received is not None
        self.connection = connection
        self._request, self._received = connection.request, connection.received
        self.outgoing = Outgoing(connection.wire, connection.limits)
        self._credential = credential_of(self._request)
        self._known, self._callers = known, callers
        caller = known.get(self._credential) if self._credential is not None else None
        # The number of requests and of threads is bounded by this: by user, else by address until the user is
        # known. No user id is a tuple.
        self.counts_for: Hashable = ("address", connection.client) if caller is None else caller.user_id
        # Among the requests that count for one user each of its tokens has its turn.
        self.turn: Hashable = None if caller is None else self._credential
        self.is_counted = False
        self._arrival = time.monotonic()
        # Once it has begun there is none.
        self.deadline = self._latest_begin()
        self.keep_alive = True
        self.abandoned = False
        # The lane where it waits for threads; set when it is handed over.
        self.lane: Lane[Exchange]
        self._application = application
        self._report = report
        self._context = contextvars.copy_context()
        self._log_context: RequestContext | None = None
        self._response: Any = None
        self._answer: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] | None = None
        self._produced = False

    def run(self) -> bool:
        """Produce the answer, or more of it, until it is sent or the client does not keep up.

        Return whether it has to wait for a thread of its user instead, and nothing was done.
        """
        # The log keeps its context by thread, and a thread serves one exchange after the other.
        _set_log_context(self._log_context)
        try:
            state = self._context.run(self._advance)
        except caller_limits.OutOfTurn:
            self.deadline = self._latest_begin()
            _set_log_context(None)
            return True
        except ConnectionError as error:
            LOG.debug("the client went away: %s", error)
            state = State.BROKEN
        except (Exception, SystemExit):
            LOG.exception("an answer failed")
            state = self._failed()
        if state is not State.BLOCKED:
            self._context.run(self._close)
        self._log_context = log_context.get_current()
        _set_log_context(None)
        self._report(self, state)
        return False

    def _latest_begin(self) -> float:
        return caller_limits.deadline_of(self._arrival, self.connection.limits.request_seconds)

    def _advance(self) -> State:
        if self.abandoned:
            return State.BROKEN
        if self._pieces is None:
            is_late = time.monotonic() >= self.deadline
            self.deadline = float("inf")
            if is_late:
                self._refuse(TOO_LATE)
            else:
                self._begin()
        assert self._pieces is not None
        while not self._produced:
            piece = next(self._pieces, None)
            if piece is None:
                self._response.close()
                self._produced = True
            else:
                self._response.write(piece)
            # Small pieces leave together, unless an empty one says that nothing may follow for long.
            is_due = piece == b"" or self.outgoing.waiting >= _TOGETHER_BYTES
            if is_due and not self.outgoing.flush():
                return State.BLOCKED
        if not self.outgoing.flush():
            return State.BLOCKED
        self.keep_alive = self.keep_alive and not self._response.should_close()
        return State.ANSWERED

    def _begin(self) -> None:
        connection = self.connection
        self._response, environ = wsgi.create(
            self._request, self.outgoing, connection.address, connection.server_address, self._request.cfg
        )
        environ["wsgi.multithread"] = True
        environ[caller_limits.ARRIVAL] = self._arrival
        environ[caller_limits.KNOWN_AS], environ[caller_limits.SIGNED_IN_AS] = (
            self._known_as,
            self._signed_in_as,
        )
        # By this the application sees whether the caller is still there.
        environ["gunicorn.socket"] = connection.wire
        if not self.keep_alive:
            self._response.force_close()
        self._answer = self._application(environ, self._response.start_response)
        self._pieces = iter(self._answer)

    def _known_as(self, user_id: str, project_id: str | None) -> bool:
        """Count the request for its user; False if that has too many. Raises OutOfTurn."""
        if self._credential is not None:
            self._known.note(self._credential, user_id, project_id)
        if self.counts_for == user_id:
            return True
        if self.is_counted and not self._callers.move(self.counts_for, user_id):
            return False
        self.turn = self._credential
        if not self.lane.move(self, user_id):
            raise caller_limits.OutOfTurn
        return True

    def _signed_in_as(self, session: str, user_id: str, project_id: str | None) -> None:
        self._known.note(digest(session), user_id, project_id)

    def _refuse(self, refusal: HttpRefusal) -> None:
        """Answer with the refusal instead of asking the application; the connection is closed then."""
        note_refusal(self.connection, self._known, refusal)
        self._pieces, self._produced, self.keep_alive = iter(()), True, False
        self.outgoing.sendall(written(refusal, self.connection.path))

    def _failed(self) -> State:
        self.keep_alive = False
        if self._produced or (self._response is not None and self._response.headers_sent):
            return State.BROKEN
        try:
            self._refuse(FAILED)
            return State.ANSWERED if self.outgoing.flush() else State.BLOCKED
        except OSError:
            return State.BROKEN
        except Exception:
            # The thread goes on with other requests.
            LOG.exception("a refusal failed")
            return State.BROKEN

    def _close(self) -> None:
        self._received.close()
        close = getattr(self._answer, "close", None)
        self._answer = ()
        if close is not None:
            try:
                close()
            except Exception:
                LOG.exception("the end of an answer failed")


def _set_log_context(request_context: RequestContext | None) -> None:
    """Have the lines that this thread logs carry that request."""
    if request_context is not None:
        request_context.update_store()
    else:
        # oslo.context has no other way to forget.
        vars(log_context._request_store).pop("context", None)


def note_refusal(connection: Connection, known: KnownCredentials, refusal: HttpRefusal) -> None:
    """Log and count a refused request, and what it tried to change; its user if the credential is known."""
    method, uri = connection.asked()
    credential = credential_of(connection.request) if connection.request is not None else None
    caller = known.get(credential) if credential is not None else None
    user_id, project_id = caller or (None, None)
    _REFUSALS.info(
        'refused a request of %s: %d %s "%s %s" user: %s',
        connection.address,
        refusal.status,
        refusal.message,
        method,
        uri,
        caller_limits.in_log(user_id) or "-",
    )
    REFUSED.labels(refusal.status).inc()
    if not changes_nothing(method, uri.partition("?")[0]):
        caller_limits.note_attempt(user_id, project_id, connection.client, method, uri, refusal.status)


def credential_of(request: Request) -> bytes | None:
    """Return the SHA-256 of the credential of a request, None without one."""
    environ: dict[str, str] = {"PATH_INFO": unquote_to_wsgi_str(path_of(request))}
    for name, value in request.headers:
        key = HEADERS.get(name)
        if key is not None:
            # As gunicorn hands repeated headers to the application.
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return digest_of(environ)
