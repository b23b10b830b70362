"""`placement import`, `export` and `verify`: moving over from OpenStack Placement, and back."""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.client.client import Client, ServiceError, path
from placement.client.display import PROSE, ActionCommand, Prose, argument, positive
from placement.engine.domain.identifiers import portions
from placement.server import commands

if TYPE_CHECKING:
    from placement.migrate.moving import MigrationReport


_ARGUMENTS = (
    argument(
        "incumbent",
        metavar="INCUMBENT",
        help="its database: a URL (SQLite, PostgreSQL, MySQL, MariaDB), or the placement.conf of OpenStack "
        "Placement that has it, which keeps the password off the command line",
    ),
    argument("--dry-run", action="store_true", help="do everything, say what it was, and undo it"),
    argument(
        "--remove",
        action="store_true",
        help="remove providers and consumers that only the target has; without it their presence is refused",
    ),
    *commands.OPTIONS,
)
_EVERY_SECONDS = 5.0
_MINUTES_FROM = 120
LOG = logging.getLogger("placement.command")


class ImportIncumbent(ActionCommand):
    """Make the database hold what one of OpenStack Placement holds.

    Everything is written in one transaction, compared with the source, and only then stored. What belongs to
    clusters stays. Repeating it writes what has changed since.
    """

    arguments = _ARGUMENTS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.migrate import moving

        _run(parsed_args, lambda here, there, **how: moving.bring_in(there, here, **how))


class ExportIncumbent(ActionCommand):
    """Make a database of OpenStack Placement hold what this one holds: the way back.

    The tables have to be there; `placement-manage db sync` of OpenStack Placement makes them.
    """

    arguments = _ARGUMENTS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.migrate import moving

        _run(parsed_args, moving.write_back)


def _run(parsed: argparse.Namespace, move: Callable[..., MigrationReport]) -> None:
    from prettytable import PrettyTable

    from placement.server import settings

    loaded = commands.configure(parsed)
    owner = loaded.placement.incomplete_consumer_project_id, loaded.placement.incomplete_consumer_user_id
    report = move(
        settings.connection_of(loaded),
        _incumbent(parsed.incumbent),
        owner=owner,
        progress=Meter(),
        may_remove=parsed.remove,
        rehearse=parsed.dry_run,
    )
    rows = [[what, one.added, one.changed, one.removed] for what, one in report.changes.items()]
    differing = [row for row in rows if any(row[1:])]
    if differing:
        table = PrettyTable(["What", "Added", "Changed", "Removed"])
        table.add_rows(differing)
        print(table)
    else:
        print("Nothing differed.")
    if report.completed_consumers:
        print(f"{report.completed_consumers} holders without a record were given one.")
    compared = ", ".join(f"{count} {what}" for what, count in report.compared.items())
    print(f"Compared with the source, and alike: {compared}.")
    if not any(report.compared.values()):
        print("The source has nothing: is its connection right?")
    print("Nothing was stored: --dry-run." if parsed.dry_run else "Stored.")


def _incumbent(given: str) -> str:
    """Return the URL of the incumbent's database. Raises PlacementError for a file that has none."""
    from placement.common import secrets
    from placement.server.settings import connection_in

    if "://" not in given:
        return connection_in(given)
    if secrets.has_password(given):
        LOG.warning(
            "INCUMBENT: any user of this machine sees its password in the list of processes; "
            "name the placement.conf that has it instead"
        )
    return given


class Meter:
    """A meter on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._what = ""
        self._told = -math.inf
        self._began = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` are there."""
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        ends = done >= total
        if what != self._what:
            self._what, self._told, self._began = what, -math.inf, now
        if not ends and now - self._told < (0.1 if is_terminal else _EVERY_SECONDS):
            return
        self._told = now
        line = f"{what}: {done} of {total}"
        if not ends and now - self._began > _EVERY_SECONDS:
            left = (now - self._began) / done * (total - done)
            line += (
                f", about {left / 60:.0f} min left" if left > _MINUTES_FROM else f", about {left:.0f} s left"
            )
        # The rest of a longer line is written over.
        begin = f"\r{line:{self._width}}" if is_terminal else line
        self._width = 0 if ends else len(line)
        end = "\n" if ends or not is_terminal else ""
        print(begin, end=end, file=sys.stderr, flush=True)


# `placement verify`: whether two running services say the same.


class VerifyServices(Prose):
    """Compare two running placement services, ours or OpenStack Placement's, by reading both over HTTP.

    Prints what differs, class by class, and ends with 1 if anything does; a format such as -o json gives a
    row for each difference. The caller needs the right to read everything. `placement import --dry-run`
    compares databases instead, in seconds: it counts the rows that an import would write.
    """

    arguments = (
        argument("url_a", metavar="URL_A", help="one service"),
        argument("url_b", metavar="URL_B", help="the other one"),
        argument("--token-b", metavar="TOKEN", help="identification at B, if it is another than --token"),
        argument("--sample", type=positive, metavar="N", help="read only N providers, chosen at random"),
        argument(
            "--clients", type=positive, default=4, metavar="N", help="readers at once (default %(default)s)"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        token = self.app.options.token
        token_b = token if parsed_args.token_b is None else parsed_args.token_b
        found = Comparison(
            lambda: Client(parsed_args.url_a, token, "URL_A"),
            lambda: Client(parsed_args.url_b, token_b, "URL_B"),
            parsed_args.clients,
        )
        found.run(parsed_args.sample, Meter())
        self.exit_status = 1 if found.differences else 0
        compared = ", ".join(f"{count} {what}" for what, count in found.compared.items())
        count = len(found.differences)
        outcome = "no difference" if not count else f"{count} difference{'s' if count > 1 else ''}"
        summary = f"{compared}: {outcome}."
        if parsed_args.formatter == PROSE:
            return ("Differences",), [(line,) for line in (*map(str, found.differences), summary)]
        self.note(summary)
        return Difference._fields, found.differences


# Whether two running services say the same, read over HTTP as any client reads them.


_OF_PROVIDER = ("inventories", "usages", "traits", "aggregates", "allocations")
# Work is handed to threads in portions, so that progress is shown while the comparison goes on.
_PORTION = 2000

Progress = Callable[[str, int, int], None]
Connect = Callable[[], Client]


class Difference(NamedTuple):
    """A value that differs between two services, A and B; None where a service has none."""

    kind: str
    uuid: str
    name: str
    what: str
    a: Any
    b: Any

    def __str__(self) -> str:
        """Return it as a sentence."""
        called = f"{self.name} ({self.uuid})" if self.name else self.uuid
        begin = f"{self.kind} {called}: " + (f"{self.what} " if self.what else "")
        if self.a is None or self.b is None:
            where, value = ("B", self.b) if self.a is None else ("A", self.a)
            return f"{begin}is only in {where}" + ("" if value is True else f", {value}")
        return f"{begin}is {self.a} in A and {self.b} in B"


class Comparison:
    """Two services, A and B, each asked by several threads at once.

    `compared` are the numbers of things that were.
    """

    def __init__(self, connect_a: Connect, connect_b: Connect, clients: int) -> None:
        """Take `connect_a` and `connect_b` to make clients for each of `clients` threads."""
        self._connect = (connect_a, connect_b)
        self._clients = clients
        self._own = threading.local()
        self.compared: dict[str, int] = {}
        self.differences: list[Difference] = []

    def run(self, sample: int | None, progress: Progress) -> None:
        """Compare names, providers with all they have, and the consumers that hold something of them.

        `sample` limits the providers, chosen by chance. What differs is read once more before it counts, as
        both services may be written to meanwhile. Raises ServiceError.
        """
        self._names("resource class", "resource classes", _listed("resource_classes", "name"))
        self._names("trait", "traits", lambda client: dict.fromkeys(client.get("/traits")["traits"], ""))
        providers = self._names("provider", "providers", _listed("resource_providers", "uuid", "name"))
        chosen = random.sample(providers, min(sample, len(providers))) if sample else providers
        consumers = self._each("provider", chosen, _provider, progress)
        self._each("consumer", sorted(consumers), _consumer, progress)

    def _names(self, kind: str, kinds: str, read: Callable[[Client], dict[str, str]]) -> list[str]:
        """Compare what both list, keys with names; return the keys that both have."""
        a, b = (read(client) for client in self._both())
        if a.keys() != b.keys():
            a, b = (read(client) for client in self._both())
        for key in sorted(a.keys() ^ b.keys()):
            name, in_a = {**a, **b}[key], key in a
            self.differences.append(Difference(kind, key, name, "", in_a or None, None if in_a else True))
        self.compared[kinds] = len(a.keys() | b.keys())
        return sorted(a.keys() & b.keys())

    def _each(self, what: str, uuids: list[str], read: _Read, progress: Progress) -> set[str]:
        """Compare things, several at a time; return the consumers that were met."""
        met: set[str] = set()
        with ThreadPoolExecutor(self._clients) as pool:
            done = 0
            for portion in portions(uuids, _PORTION):
                for consumers, differences in pool.map(lambda uuid: self._one(what, uuid, read), portion):
                    met |= consumers
                    self.differences += differences
                    done += 1
                    progress(f"{what}s", done, len(uuids))
        self.compared[f"{what}s read"] = len(uuids)
        return met

    def _one(self, what: str, uuid: str, read: _Read) -> tuple[set[str], list[Difference]]:
        a, b = (_read(read, client, uuid) for client in self._both())
        if a != b:
            a, b = (_read(read, client, uuid) for client in self._both())
        name: str = a.get("name") or b.get("name") or ""
        in_a, in_b = dict(_leaves(a)), dict(_leaves(b))
        differences = [
            Difference(what, uuid, name, leaf, in_a.get(leaf), in_b.get(leaf))
            for leaf in sorted({*in_a, *in_b})
            if in_a.get(leaf) != in_b.get(leaf)
        ]
        return {*(a.get("allocations") or {}), *(b.get("allocations") or {})}, differences

    def _both(self) -> tuple[Client, Client]:
        if not hasattr(self._own, "clients"):
            self._own.clients = tuple(connect() for connect in self._connect)
        clients: tuple[Client, Client] = self._own.clients
        return clients


_Read = Callable[[Client, str], dict[str, Any]]


def _read(read: _Read, client: Client, uuid: str) -> dict[str, Any]:
    """Return what a service has, nothing if it was deleted since the list was read. Raises ServiceError."""
    try:
        return read(client, uuid)
    except ServiceError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {}


def _listed(route: str, member: str, name: str = "") -> Callable[[Client], dict[str, str]]:
    """Return a reader of one member of all that a route lists under its own name, with their names."""
    return lambda client: {entry[member]: entry.get(name, "") for entry in client.get(f"/{route}")[route]}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside of objects by where they are, and each entry of a list as one that is there."""
    if isinstance(value, list):
        value = dict.fromkeys(value, True)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path} {key}".lstrip())
    else:
        yield path, value


def _provider(client: Client, uuid: str) -> dict[str, Any]:
    own = client.get(path("resource_providers", uuid))
    found = {key: value for key, value in own.items() if key not in ("links", "uuid")}
    for part in _OF_PROVIDER:
        answer = client.get(path("resource_providers", uuid, part))[part]
        found[part] = sorted(answer) if isinstance(answer, list) else answer
    return found


def _consumer(client: Client, uuid: str) -> dict[str, Any]:
    """Return what a consumer is and holds, without the generations of providers."""
    found = dict(client.get(path("allocations", uuid)))
    held = found.pop("allocations")
    return {**found, "resources": {provider: entry["resources"] for provider, entry in held.items()}}
