"""`placement import`, `export` and `verify`: moving over from OpenStack Placement, and back."""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from placement.client.client import Client, path
from placement.client.display import ActionCommand, argument, positive
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
    table = PrettyTable(["What", "Added", "Changed", "Removed"])
    table.add_rows([[what, one.added, one.changed, one.removed] for what, one in report.changes.items()])
    print(table)
    if report.completed_consumers:
        print(f"{report.completed_consumers} holders without a record were given one.")
    compared = ", ".join(f"{count} {what}" for what, count in report.compared.items())
    print(f"Compared with the source, and alike: {compared}.")
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
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` are there."""
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        ends = done >= total
        if what != self._what:
            self._what, self._told = what, -math.inf
        if not ends and now - self._told < (0.1 if is_terminal else _EVERY_SECONDS):
            return
        self._told = now
        line = f"{what}: {done} of {total}"
        # The rest of a longer line is written over.
        begin = f"\r{line:{self._width}}" if is_terminal else line
        self._width = 0 if ends else len(line)
        end = "\n" if ends or not is_terminal else ""
        print(begin, end=end, file=sys.stderr, flush=True)


# `placement verify`: whether two running services say the same.


class VerifyServices(ActionCommand):
    """Compare two running placement services, ours or OpenStack Placement's, by reading both over HTTP.

    Prints what differs, and ends with 1 if anything does. The caller needs the right to read everything.
    """

    arguments = (
        argument("url_a", metavar="URL_A", help="one service"),
        argument("url_b", metavar="URL_B", help="the other one"),
        argument("--token-b", metavar="TOKEN", help="identification at B, if it is another than --token"),
        argument(
            "--sample", type=positive, metavar="N", help="read only so many providers, chosen by chance"
        ),
        argument(
            "--clients", type=positive, default=4, metavar="N", help="readers at once (default %(default)s)"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        token = self.app.options.token
        token_b = token if parsed_args.token_b is None else parsed_args.token_b
        found = Comparison(
            lambda: Client(parsed_args.url_a, token),
            lambda: Client(parsed_args.url_b, token_b),
            parsed_args.clients,
        )
        found.run(parsed_args.sample, Meter())
        for difference in found.differences:
            print(difference)
        compared = ", ".join(f"{count} {what}" for what, count in found.compared.items())
        outcome = f"{len(found.differences)} differences" if found.differences else "no difference"
        print(f"{compared}: {outcome}.")
        return 1 if found.differences else 0


# Whether two running services say the same, read over HTTP as any client reads them.


_OF_PROVIDER = ("inventories", "usages", "traits", "aggregates", "allocations")
# Work is handed to threads in portions, so that progress is shown while the comparison goes on.
_PORTION = 2000

Progress = Callable[[str, int, int], None]
Connect = Callable[[], Client]


class Comparison:
    """Two services, A and B, each asked by several threads at once.

    `compared` are the numbers of things that were, `differences` a sentence for each.
    """

    def __init__(self, connect_a: Connect, connect_b: Connect, clients: int) -> None:
        """Take `connect_a` and `connect_b` to make clients for each of `clients` threads."""
        self._connect = (connect_a, connect_b)
        self._clients = clients
        self._own = threading.local()
        self.compared: dict[str, int] = {}
        self.differences: list[str] = []

    def run(self, sample: int | None, progress: Progress) -> None:
        """Compare names, providers with all they have, and the consumers that hold something of them.

        `sample` limits the providers, chosen by chance. What differs is read once more before it counts, as
        both services may be written to meanwhile. Raises ServiceError.
        """
        self._names("resource classes", _listed("resource_classes", "name"))
        self._names("traits", lambda client: set(client.get("/traits")["traits"]))
        providers = self._names("providers", _listed("resource_providers", "uuid"))
        chosen = random.sample(providers, min(sample, len(providers))) if sample else providers
        consumers = self._each("provider", chosen, _provider, progress)
        self._each("consumer", sorted(consumers), _consumer, progress)

    def _names(self, what: str, read: Callable[[Client], set[str]]) -> list[str]:
        a, b = (read(client) for client in self._both())
        if a != b:
            a, b = (read(client) for client in self._both())
        for only, where in ((a - b, "A"), (b - a, "B")):
            self.differences += [f"{what}: only {where} has {name}" for name in sorted(only)]
        self.compared[what] = len(a | b)
        return sorted(a & b)

    def _each(self, what: str, uuids: list[str], read: _Read, progress: Progress) -> set[str]:
        """Compare things, several at a time; return the consumers that were met."""
        met: set[str] = set()
        with ThreadPoolExecutor(self._clients) as pool:
            done = 0
            for portion in portions(uuids, _PORTION):
                for consumers, differences in pool.map(lambda uuid: self._one(what, uuid, read), portion):
                    met |= consumers
                    self.differences += differences
                done += len(portion)
                progress(f"{what}s", done, len(uuids))
        self.compared[f"{what}s read"] = len(uuids)
        return met

    def _one(self, what: str, uuid: str, read: _Read) -> tuple[set[str], list[str]]:
        a, b = (read(client, uuid) for client in self._both())
        if a != b:
            a, b = (read(client, uuid) for client in self._both())
        differences = [
            f"{what} {uuid}: {part} are {a.get(part)} in A and {b.get(part)} in B"
            for part in sorted({*a, *b})
            if a.get(part) != b.get(part)
        ]
        return {*(a.get("allocations") or {}), *(b.get("allocations") or {})}, differences

    def _both(self) -> tuple[Client, Client]:
        if not hasattr(self._own, "clients"):
            self._own.clients = tuple(connect() for connect in self._connect)
        clients: tuple[Client, Client] = self._own.clients
        return clients


_Read = Callable[[Client, str], dict[str, Any]]


def _listed(route: str, member: str) -> Callable[[Client], set[str]]:
    """Return a reader of one member of all that a route lists under its own name."""
    return lambda client: {entry[member] for entry in client.get(f"/{route}")[route]}


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
