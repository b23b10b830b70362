"""One request and its answer, produced by threads of a lane as fast as the client takes it."""

from __future__ import annotations

import contextvars
import hashlib
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from gunicorn.http import wsgi
from gunicorn.http.message import Request
from oslo_context import context as log_context
from oslo_context.context import RequestContext

from placement.domain import deadline
from placement.operations.http import refusals
from placement.operations.http.lanes import Lane
from placement.operations.http.limits import Limits
from placement.operations.http.outgoing import Outgoing
from placement.operations.http.received import Received
from placement.services.callers import KNOWN_AS, KnownCredentials

if TYPE_CHECKING:
    from placement.operations.http.connection import Connection

LOG = logging.getLogger(__name__)
_TOGETHER_BYTES = 16 * 1024
# What identifies callers: a token, else what clients of other kinds and browsers send.
_TOKEN, _OTHER_CREDENTIALS = "X-AUTH-TOKEN", ("AUTHORIZATION", "COOKIE")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class State(Enum):
    """What the event loop has to do next about an exchange."""

    BLOCKED = auto()
    ANSWERED = auto()
    BROKEN = auto()


class Exchange:
    """A complete request in work. A thread may leave it while the client reads slowly; another continues."""

    def __init__(
        self,
        connection: Connection,
        request: Request,
        received: Received,
        limits: Limits,
        known: KnownCredentials,
        application: Application,
        report: Callable[[Exchange, State], None],
    ) -> None:
        self.connection = connection
        self.request = request
        self.received = received
        self.outgoing = Outgoing(connection.wire, limits)
        self._credentials = _credentials(request)
        self._known = known
        user = known.user_of(self._credentials) if self._credentials is not None else None
        address = _host(connection.address)
        # Lanes let each token of a user have its turn; strangers have those of their address.
        self.caller: Hashable = address if user is None else self._credentials
        # Whose number of requests is bounded; no user id is a tuple.
        self.counts_for: Hashable = ("address", address) if user is None else user
        self.is_counted = False
        self.arrival = time.monotonic()
        self.deadline = deadline.of(self.arrival, limits.request_seconds)
        self.keep_alive = True
        self.abandoned = False
        # Where it waits for threads; set when it is handed over.
        self.lane: Lane
        self._application = application
        self._report = report
        self._context = contextvars.copy_context()
        self._log_context: RequestContext | None = None
        self._response: Any = None
        self._answer: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] | None = None
        self._produced = False

    @property
    def begun(self) -> bool:
        """Whether the application was asked."""
        return self._pieces is not None

    def run(self) -> None:
        """Produce the answer, or more of it, until it is sent or the client does not keep up."""
        # The log keeps it by threads, which serve one exchange after the other.
        _set_log_context(self._log_context)
        state = self._run()
        self._log_context = log_context.get_current()
        _set_log_context(None)
        self._report(self, state)

    def _run(self) -> State:
        try:
            state = self._context.run(self._advance)
        except (BrokenPipeError, ConnectionError) as error:
            LOG.debug("the client went away: %s", error)
            state = State.BROKEN
        except (Exception, SystemExit):
            LOG.exception("an answer failed")
            state = self._failed()
        if state is not State.BLOCKED:
            self._context.run(self._close)
        return state

    def _advance(self) -> State:
        if self.abandoned:
            return State.BROKEN
        if self._pieces is None:
            if time.monotonic() >= self.deadline:
                self.refuse(refusals.TOO_LATE)
                return State.ANSWERED if self.outgoing.flush() else State.BLOCKED
            self._begin()
        return self._send()

    def _begin(self) -> None:
        connection, outgoing = self.connection, self.outgoing
        self._response, environ = wsgi.create(
            self.request, outgoing, connection.address, connection.server_address, self.request.cfg
        )
        environ["wsgi.multithread"] = True
        environ[deadline.KEY] = self.arrival
        environ[KNOWN_AS] = self._known_as
        # By this the application sees whether the caller is still there.
        environ["gunicorn.socket"] = connection.wire
        if not self.keep_alive:
            self._response.force_close()
        self._answer = self._application(environ, self._response.start_response)
        self._pieces = iter(self._answer)

    def _known_as(self, user_id: str) -> None:
        if self._credentials is not None:
            self._known.note(self._credentials, user_id)

    def _send(self) -> State:
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

    def refuse(self, refusal: refusals.HttpRefusal) -> None:
        """Answer with the refusal instead of asking the application."""
        self._pieces, self._produced, self.keep_alive = iter(()), True, False
        self._response = _Closing()
        self.outgoing.sendall(refusals.written(refusal))

    def _failed(self) -> State:
        self.keep_alive = False
        if self._response is not None and self._response.headers_sent:
            return State.BROKEN
        self.refuse(refusals.FAILED)
        try:
            return State.ANSWERED if self.outgoing.flush() else State.BLOCKED
        except OSError:
            return State.BROKEN

    def _close(self) -> None:
        self.received.close()
        close = getattr(self._answer, "close", None)
        self._answer = ()
        if close is not None:
            try:
                close()
            except Exception:
                LOG.exception("the end of an answer failed")


def _set_log_context(wanted: RequestContext | None) -> None:
    """Have the lines that this thread logs carry that request."""
    if wanted is not None:
        wanted.update_store()
    else:
        # oslo.context has no other way to forget.
        vars(log_context._request_store).pop("context", None)


class _Closing:
    """The response of a refusal, which is written already."""

    headers_sent = True

    def should_close(self) -> bool:
        """Always."""
        return True


def _credentials(request: Request) -> bytes | None:
    """Return the SHA-256 of what identifies the caller, None if the request has nothing of that kind."""
    found = [value for name, value in request.headers if name == _TOKEN]
    found = found or [value for name, value in request.headers if name in _OTHER_CREDENTIALS]
    return hashlib.sha256("\n".join(found).encode("latin-1", "replace")).digest() if found else None


def _host(address: Any) -> str:
    """Return the address of a client without its port."""
    return str(address[0]) if isinstance(address, tuple) else str(address)
