"""The ten hottest requests beside their floor: what of each is HTTP, Flask, the database, and what is ours.

python -m benchmarks.floor                               on PostgreSQL, 2,000 flat hosts
python -m benchmarks.floor --database sqlite --rounds 20  with no other hosts

Milliseconds of processor time for a request, the tenth percentile, which a busy machine disturbs least: of
the worker and of PostgreSQL in the real service, of the same bytes from a bare application in our worker and
from a Flask route there, and of the statements of the request in the driver, on the side of the worker. The
last column is the worker beside the bare application and those statements. The requests are those of
tests.calls. All take turns in blocks of ten, on one kept connection each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import sqlalchemy as sa
from flask import Flask, Response, request

from benchmarks import bulk, data
from benchmarks.measure import Timing
from benchmarks.processor_time import ProcessorTime, milliseconds_of, named
from benchmarks.report import print_table
from benchmarks.servers import await_ready, children_of
from benchmarks.wire import Wire
from placement.http.worker.lanes import WorkerLimits
from placement.server.ports import listening
from placement.server.processes import Server
from placement.storage.backends.postgresql_driver import WatchedCursor
from placement.storage.database import Database
from tests.calls import Request, Scene
from tests.client import Client
from tests.conftest import application_of
from tests.server import BACKENDS, await_answer, database_url, free_port, running_service

_WARM, _BLOCK = 5, 10
_KINDS = ("bare", "flask")
_ENDS_WITHIN_SECONDS = 60
_HEADINGS = [
    "request",
    "bytes",
    "worker",
    "PostgreSQL",
    "bare",
    "Flask",
    "statements",
    "in driver",
    "x floor",
]

Answer = tuple[int, str]
"""Status and body."""


def main() -> None:
    """Measure, and print a row for each request."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--database", choices=BACKENDS, default="postgresql")
    parser.add_argument("--hosts", type=int, default=2000, help="flat hosts beside those of the requests")
    parser.add_argument("--rounds", type=int, default=40, help="blocks of ten of each request")
    parser.add_argument("--serve", nargs=3, metavar=("KIND", "PORT", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        kind, port, file = given.serve
        _FloorServer(int(port), kind, json.loads(Path(file).read_text())).run()
        return
    with database_url(given.database) as connection:
        if given.database == "postgresql":
            bulk.fill(connection, data.flat(given.hosts))
        rows = [cost.row() for cost in _measured(connection, given.rounds)]
    print_table(f"milliseconds of processor time, {given.database}", _HEADINGS, rows)


@dataclass
class Cost:
    """What a request took, in milliseconds of processor time; `size` is that of its answer in bytes."""

    name: str
    size: int
    worker: Timing = field(default_factory=Timing)
    sessions: Timing = field(default_factory=Timing)
    driver: Timing = field(default_factory=Timing)
    statements: int = 0
    floors: dict[str, Timing] = field(default_factory=lambda: {kind: Timing() for kind in _KINDS})

    def row(self) -> list[str]:
        """Return the cells; the floor is the bare application and the statements together."""
        worker, sessions, driver = (
            timing.percentile(0.1) for timing in (self.worker, self.sessions, self.driver)
        )
        bare, flask = (self.floors[kind].percentile(0.1) for kind in _KINDS)
        figures = [f"{each:.2f}" for each in (worker, sessions, bare, flask)]
        ratio = worker / (bare + driver)
        return [self.name, str(self.size), *figures, str(self.statements), f"{driver:.2f}", f"{ratio:.1f}"]


def _measured(connection: str, rounds: int) -> Iterator[Cost]:
    database = Database(named(connection))
    statements = Statements(database.engine)
    with (
        application_of(database) as application,
        running_service(connection, workers=1) as service,
        ExitStack() as stack,
    ):
        client = Client(application.test_client())
        requests = Scene(client).requests()
        bulk.tidy(connection)
        await_ready(service.url)
        wire, processor_time = Wire(service.url), ProcessorTime(service.process.pid, connection)
        answers = {name: _answer(wire, make()) for name, make in requests.items()}
        floors = {kind: stack.enter_context(_floor(kind, [*answers.values()])) for kind in _KINDS}
        for number, (name, make) in enumerate(requests.items()):
            cost = Cost(name, len(answers[name][1]))
            for _ in range(_WARM):
                _answer(wire, make())
                _in_process(client, make())
            for _ in range(rounds):
                before = processor_time.taken()
                for _ in range(_BLOCK):
                    _answer(wire, make())
                after = processor_time.taken()
                cost.worker.milliseconds.append((after.workers - before.workers) / _BLOCK)
                cost.sessions.milliseconds.append((after.sessions - before.sessions) / _BLOCK)
                made = make()
                statements.begin()
                _in_process(client, made)
                cost.driver.milliseconds.append(statements.milliseconds)
                cost.statements = statements.count
                for kind, floor in floors.items():
                    cost.floors[kind].milliseconds.append(floor.costs(number, make()))
            yield cost
    database.dispose()


def _answer(wire: Wire, made: Request) -> Answer:
    status, content = wire.call(*made)
    if status >= 300:
        raise RuntimeError(f"{made[:2]}: {status} {content[:300]!r}")
    return status, content.decode()


def _in_process(client: Client, made: Request) -> None:
    answer = client.call(*made)
    if answer.status_code >= 300:
        raise RuntimeError(f"{made[:2]}: {answer.text}")


class Statements:
    """The statements of the request at hand, and the processor time that the driver takes for them here."""

    def __init__(self, engine: sa.Engine) -> None:
        """Watch an engine that has not connected yet."""
        self.count, self.milliseconds = 0, 0.0
        self._since = 0
        if engine.dialect.name == "postgresql":
            # What bypasses SQLAlchemy counts, too.
            sa.event.listen(engine, "connect", self._watch)
        else:
            sa.event.listen(engine, "before_cursor_execute", self._begins)
            sa.event.listen(engine, "after_cursor_execute", self._ends)

    def begin(self) -> None:
        """Begin anew, with the next request."""
        self.count, self.milliseconds = 0, 0.0

    def _watch(self, connection: Any, _record: Any) -> None:
        timed = self._timed

        class Timed(WatchedCursor):
            def execute(self, query: Any, vars: Any = None) -> None:
                timed(1, super().execute, query, vars)

            def fetchall(self) -> Any:
                return timed(0, super().fetchall)

            def fetchone(self) -> Any:
                return timed(0, super().fetchone)

        connection.cursor_factory = Timed

    def _timed(self, count: int, run: Callable[..., Any], *given: Any) -> Any:
        self._begins()
        try:
            return run(*given)
        finally:
            self._ends(count=count)

    def _begins(self, *_: Any) -> None:
        self._since = time.thread_time_ns()

    def _ends(self, *_: Any, count: int = 1) -> None:
        self.milliseconds += (time.thread_time_ns() - self._since) / 1e6
        self.count += count


class Floor:
    """A running server that has the answers ready made."""

    def __init__(self, url: str, master: int) -> None:
        self._wire, self._master = Wire(url), master

    def costs(self, number: int, made: Request) -> float:
        """Return what the worker takes for the request with this number, as the mean of a block."""
        method, path, body = made
        before = milliseconds_of(children_of(self._master))
        for _ in range(_BLOCK):
            self._wire.must(method, f"/{number}{path}", body)
        return (milliseconds_of(children_of(self._master)) - before) / _BLOCK


@contextmanager
def _floor(kind: str, answers: list[Answer]) -> Iterator[Floor]:
    """A server of that kind, in a process of its own."""
    port = free_port()
    with NamedTemporaryFile("w", prefix="placement-floor-") as file:
        json.dump(answers, file)
        file.flush()
        command = [sys.executable, "-m", "benchmarks.floor", "--serve", kind, str(port), file.name]
        process = subprocess.Popen(command)
        try:
            await_answer(f"http://127.0.0.1:{port}/0/", lambda: process.poll() is not None)
            yield Floor(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait(_ENDS_WITHIN_SECONDS)


class _FloorServer(Server):
    """Our master and one worker around an application that has its answers."""

    def __init__(self, port: int, kind: str, answers: list[Answer]) -> None:
        self._kind, self._answers = kind, [(status, body.encode()) for status, body in answers]
        super().__init__(listening("127.0.0.1", port), 1, WorkerLimits, lambda: None)

    def load(self) -> Any:
        """Return the application."""
        return _flask(self._answers) if self._kind == "flask" else _bare(self._answers)


def _bare(answers: list[tuple[int, bytes]]) -> Any:
    by_path = {str(number): answer for number, answer in enumerate(answers)}

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["wsgi.input"].read()
        # The master asks for health at the start.
        status, body = by_path.get(environ["PATH_INFO"].split("/", 2)[1], (404, b""))
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        # A 204 has no length.
        start_response(f"{status} OK", headers if body else [])
        return [body]

    return application


def _flask(answers: list[tuple[int, bytes]]) -> Flask:
    flask = Flask(__name__)

    @flask.route("/<int:number>/<path:_rest>", methods=["GET", "PUT", "POST", "DELETE"])
    @flask.get("/<int:number>/", defaults={"_rest": ""})
    def answer(number: int, _rest: str) -> Response:
        request.get_data()
        status, body = answers[number]
        return Response(body, status, mimetype="application/json")

    return flask


if __name__ == "__main__":
    main()
