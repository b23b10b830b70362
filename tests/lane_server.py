"""Our server around an application for tests of the server alone, with limits that tests can wait for.

python -m tests.lane_server PORT WORKERS LIMITS FOLDER: limits are JSON; what happens is noted in the folder.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from oslo_context.context import RequestContext, get_current

from placement.http.caller_limits import KNOWN_AS
from placement.http.credentials import SIGNED_IN, sent_session, sent_token
from placement.http.worker import event_loop, exchange, worker
from placement.http.worker.connection import Connection
from placement.http.worker.event_loop import EventLoop
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.worker import LaneWorker
from placement.server.ports import listening
from placement.server.processes import Server
from tests.client import unique
from tests.hostile import Wire, request
from tests.patience import eventually
from tests.server import free_port

_STARTS_WITHIN_SECONDS = 60
_TRIES = 1000
LARGE = 64 * 2**20
_LOG = "PLACEMENT_TEST_LOG"


class TestServer(Server):
    """Serves the application below instead of the service."""

    __test__ = False

    def __init__(self, port: int, workers: int, limits: WorkerLimits, folder: Path) -> None:
        self._folder = folder
        super().__init__(listening("127.0.0.1", port), workers, lambda: limits, (folder / "greeted").touch)

    def load_config(self) -> None:
        """That of the server, with the worker below."""
        super().load_config()
        self.cfg.set("worker_class", FailingWorker)

    def load(self) -> Any:
        """The application, if a file says that it can be loaded."""
        if (self._folder / "failing").exists():
            raise ValueError("a mistake in the configuration")
        if (self._folder / "broken").exists():
            sys.exit("the configuration is broken")
        (self._folder / f"loaded-{os.getpid()}").touch()
        time.sleep(float((self._folder / "delay").read_text()) if (self._folder / "delay").exists() else 0)
        return Application(self._folder)


class FailingWorker(LaneWorker):
    """A worker with the event loop below."""

    def run(self) -> None:
        """Serve."""
        # The process is the worker's own.
        worker.EventLoop = FailingLoop  # type: ignore[misc]
        noted = exchange.note_refusal

        def note_refusal(connection: Connection, *rest: Any) -> None:
            if connection.path == "/no-line":
                raise ValueError("no line for this one")
            noted(connection, *rest)

        event_loop.note_refusal = exchange.note_refusal = note_refusal
        super().run()


class FailingLoop(EventLoop):
    """An event loop with a mistake in it, which one request brings to light."""

    def _dispatch(self, connection: Connection) -> None:
        assert connection.request is not None
        if connection.request.path == "/mistake":
            raise ValueError("a mistake")
        super()._dispatch(connection)


class Application:
    """Waits, echoes, and sends large answers; tokens and sessions `known-USER/...` are of this user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        token = sent_token(environ) or (sent_session(environ) or "").removeprefix(SIGNED_IN)
        if token.startswith("known-") and not environ[KNOWN_AS](token.partition("/")[0], None):
            start_response("429 Too Many Requests", [("Content-Length", "0")])
            return []
        query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
        self._note("begun", query)
        while "held" in query and not (self._folder / f"free-{query['held']}").exists():
            time.sleep(0.02)
        time.sleep(float(query.get("sleep", 0)))
        until = time.monotonic() + float(query.get("spin", 0))
        while time.monotonic() < until:
            pass
        if "fail" in query:
            raise ValueError("a mistake")
        path = environ["PATH_INFO"]
        if path == "/whose":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return self._whose(query)
        if path == "/stream":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return self._stream(query)
        body = {
            "/large": lambda: b"x" * LARGE,
            "/echo": lambda: environ["wsgi.input"].read(),
            "/pid": lambda: str(os.getpid()).encode(),
            "/frozen": lambda: str(gc.get_freeze_count()).encode(),
        }.get(path, lambda: b"ok")()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def _stream(self, query: dict[str, str]) -> Iterator[bytes]:
        try:
            for number in range(int(query.get("pieces", 10**9))):
                yield b"%07d\n" % number * 1000
        finally:
            self._note("closed", query)

    def _whose(self, query: dict[str, str]) -> Iterator[bytes]:
        """Whose lines those in the log would be, again and again; without a name nobody's."""
        if "name" in query:
            RequestContext(request_id=query["name"])
        for _ in range(int(query.get("pieces", 1))):
            context = get_current()
            yield (context.request_id if context else "nobody").ljust(8000).encode()

    def _note(self, event: str, query: dict[str, str]) -> None:
        if "name" in query:
            (self._folder / f"{event}-{query['name']}").touch()


@dataclass(frozen=True)
class Running:
    """A server that answers at `url`."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path

    def has_noted(self, event: str, name: str) -> bool:
        """Whether the application has begun, or closed, what was called so."""
        return (self.folder / f"{event}-{name}").exists()

    def hold(self, stack: ExitStack, method: str, known: str, path: str = "/any?held=all") -> Wire:
        """Have a request in work until it is freed; one that is refused is sent again.

        For an answer may arrive a moment before the server has counted its request as done.
        """
        name = unique()
        text = request(method, f"{path}&name={name}", b"", known=known)

        for _ in range(_TRIES):
            wire = stack.enter_context(Wire(self.url)).send(text)
            eventually(True, lambda sent=wire: self.has_noted("begun", name) or not sent.is_open())
            if self.has_noted("begun", name):
                return wire
        raise AssertionError("refused again and again")

    def free(self, held: str) -> None:
        """Let the requests go on that are `held` by this name, those that come later included."""
        (self.folder / f"free-{held}").touch()

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def running(
    *, workers: int = 1, port: int | None = None, log: Path | None = None, **limits: float
) -> Iterator[Running]:
    """The server in a process of its own, ended after the block; `log`: a file for what it logs."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="placement-lanes-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.lane_server", str(port), str(workers), json.dumps(limits), folder],
            cwd=Path(__file__).resolve().parents[1],
            # SIGHUP tries out the service's configuration.
            env={**os.environ, "OS_API__AUTH_STRATEGY": "noauth2", **({_LOG: str(log)} if log else {})},
        )
        server = Running(f"http://127.0.0.1:{port}", port, process, Path(folder))
        try:
            _await_greeting(server)
            yield server
        finally:
            # Nobody waits for requests that are in work.
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_greeting(server: Running) -> None:
    """Wait until all workers serve."""
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while not (server.folder / "greeted").exists():
        assert server.process.poll() is None, "the server has ended"
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.05)


if __name__ == "__main__":
    if _LOG in os.environ:
        logging.basicConfig(
            filename=os.environ[_LOG], level=logging.INFO, format="%(name)s %(message)s", force=True
        )
    _port, _workers, _limits, _folder = sys.argv[1:]
    TestServer(int(_port), int(_workers), WorkerLimits(**json.loads(_limits)), Path(_folder)).run()
