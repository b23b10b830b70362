"""The base of all commands: commands that do something, list rows, or show one thing.

cliff looks for plugins of every command in all installed packages. Here are none, and the search would take
longer than most commands do, so commands and formatters are wired by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cliff.command import Command
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from cliff.lister import Lister
from cliff.show import ShowOne
from stevedore.extension import Extension, ExtensionManager

from placement.client.formats import Csv, Text, WrappedTable, Yaml
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.cpus import format_cpu_list

if TYPE_CHECKING:
    from placement.client.client import Client


# Arguments of commands: whole numbers, query parameters (KEY=VALUE), and files that are read.


Argument = Callable[[argparse.ArgumentParser], object]
"""A function that adds an argument to a parser."""
Pairs = list[tuple[str, str]]
STANDARD_INPUT = "-"


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command, as argparse takes it."""
    return lambda parser: parser.add_argument(*names, **options)


def repeatable(name: str, metavar: str, help: str, **options: Any) -> Argument:
    """Return an option that may be given several times; its values are a list."""
    return argument(name, action="append", default=[], metavar=metavar, help=help, **options)


def given(**members: Any) -> dict[str, Any]:
    """Return the members of a body that are not None."""
    return {name: value for name, value in members.items() if value is not None}


CLUSTER = argument("cluster", help="name of the cluster")


def _whole(least: int, most: float, what: str) -> Callable[[str], int]:
    """Return what reads a whole number. It raises ArgumentTypeError, which comes with the usage."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
        return int(text)

    return read


positive = _whole(1, math.inf, "a whole number from 1 on")
# Not 0, which would be any port.
port_number = _whole(1, 65535, "a port from 1 to 65535")


def limit(help: str, default: int | None = None) -> Argument:
    """Return the option that bounds how much is listed."""
    return argument("--limit", type=positive, metavar="N", help=help, default=default)


def consumer_uuid(text: str) -> str:
    """Return the UUID of a consumer. Raises ArgumentTypeError."""
    if normalize_uuid(text) is None:
        raise argparse.ArgumentTypeError(f"must be a UUID, not {text!r}")
    return text


def parameter(text: str) -> tuple[str, str]:
    """Return a query parameter. Raises ArgumentTypeError."""
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text}: is no KEY=VALUE, such as resources=VCPU:2")
    return key, value


QUERY = argument("query", nargs="+", type=parameter, metavar="KEY=VALUE", help="query parameter, repeatable")


def read_bytes(name: str) -> bytes:
    """Return the content of the file, or of standard input. Raises PlacementError naming the file."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise PlacementError(f"{name}: {getattr(error, 'strerror', None) or error}") from None


def read_yaml(name: str) -> list[Any]:
    """Return the YAML documents in the file. Raises PlacementError naming the file."""
    # Importing it takes long.
    from placement.common.documents import parse_yaml

    return parse_yaml(read_bytes(name))


def read_json(name: str) -> object:
    """Return the JSON in the file. Raises PlacementError naming the file."""
    try:
        document: object = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{name}: is no JSON: {error}") from None
    return document


_TABLE = "table"
_LIST = {"json": JSONFormatter, _TABLE: WrappedTable, "value": ValueFormatter, "yaml": Yaml, "csv": Csv}
DRAWING = "tree"
PROSE = "text"
ENOUGH = 1000
"""How many more entries are counted at most, so that no fleet makes an answer for people large."""
_PAGE = 1000
_Entry = TypeVar("_Entry")


class ActionCommand(Command):
    """A command without plugins that has the service at hand; it does something and prints little."""

    arguments: ClassVar[Sequence[Argument]] = ()
    auth_required: ClassVar[bool] = True
    """Whether it asks the service, so that the `openstack` client has to sign in."""
    exit_status = 0
    """How the command ends if nothing goes wrong."""
    _formatters: ClassVar[Mapping[str, Any]] = {}
    _hooks: Any

    def get_parser(self, prog_name: str) -> ArgumentParser:
        parser: ArgumentParser = super().get_parser(prog_name)
        for add in self.arguments:
            add(parser)
        return parser

    def run(self, parsed_args: Namespace) -> int:
        return super().run(parsed_args) or self.exit_status

    def _load_hooks(self) -> None:
        self._hooks = []

    def _load_formatter_plugins(self) -> ExtensionManager[Any]:
        package: Any = None
        return ExtensionManager.make_test_instance(
            [Extension(name, package, made, made()) for name, made in self._formatters.items()]
        )

    def get_epilog(self) -> str:
        """Return nothing, as cliff would name the package that a command comes from."""
        return ""

    @property
    def client(self) -> Client:
        """Return the service that --url names, or that the `openstack` client is signed in to."""
        manager = getattr(self.app, "client_manager", None)
        if manager is not None:
            found: Client = manager.placement_forest
            return found
        from placement.client.client import Client

        return Client(self.app.options.url, self.app.options.token)

    def note(self, text: str) -> None:
        """Print a note to the person at the terminal, where no program reads it."""
        print(text, file=self.app.stderr)


class Details(ActionCommand, ShowOne):
    """A command that prints the fields of one thing."""

    _formatters: ClassVar[Mapping[str, Any]] = {**_LIST, "shell": ShellFormatter}


class Listing(ActionCommand, Lister):
    """A command that prints rows, or what people read in their place."""

    left_out_first: ClassVar[Sequence[str]] = ()
    """The columns that narrow terminals can do without, the least important one first."""
    says_how_many = "--limit N"
    _formatters: ClassVar[Mapping[str, Any]] = _LIST
    _form = _TABLE
    _rest = ""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--wide", action="store_true", help="show all columns, however narrow the terminal is"
        )
        return parser

    @property
    def formatter_default(self) -> str:
        return self._form

    def run(self, parsed_args: Namespace) -> int:
        parsed_args.left_out_first = self.left_out_first
        if parsed_args.formatter == self._form and (parsed_args.columns or parsed_args.wide):
            # A choice of columns asks for rows.
            parsed_args.formatter = _TABLE
        status = super().run(parsed_args)
        if self._rest:
            print(self._rest, file=self.app.stdout)
        return status

    def for_people(self, parsed_args: Namespace) -> bool:
        """Return whether a person reads the output, and not a program."""
        return parsed_args.formatter in (_TABLE, self._form)

    def first(self, parsed_args: Namespace, entries: Iterable[_Entry], most: int) -> Iterable[_Entry]:
        """Return the entries, for people only the first; the number of the others follows the output."""
        if not self.for_people(parsed_args):
            return entries
        begun = list(islice(entries, most + ENOUGH))
        left = len(begun) - most
        if left > 0:
            at_least = "at least " if left == ENOUGH else ""
            self._rest = f"... {at_least}{left} more; {self.says_how_many} shows more"
        return begun[:most]

    def pages(
        self,
        parsed_args: Namespace,
        path: str,
        member: str,
        cursor: str,
        wanted: Mapping[str, str | None],
        most: int | None = None,
    ) -> Iterable[dict[str, Any]]:
        """Return the entries of the list at a path that meet all that is `wanted`, at most --limit.

        `member` holds the entries of a page, `cursor` asks for the page after `next`. The first page is read
        at once, so that a refusal comes before anything is written. People see `most` without a limit.
        """
        limit, client = parsed_args.limit, self.client
        query = [*given(**wanted).items(), ("limit", str(min(limit or _PAGE, _PAGE)))]

        def entries(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield from page[member]
            while page["next"] is not None:
                page = client.get(path, [*query, (cursor, str(page["next"]))])
                yield from page[member]

        found = islice(entries(client.get(path, query)), limit)
        return found if most is None or limit is not None else self.first(parsed_args, found, most)


class DrawingCommand(Listing):
    """A command that draws, or prints the rows behind the drawing."""

    _form = DRAWING
    _formatters: ClassVar[Mapping[str, Any]] = {**_LIST, DRAWING: Text}


class Prose(Listing):
    """A command that prints sentences, or the rows behind them."""

    _form = PROSE
    _formatters: ClassVar[Mapping[str, Any]] = {**_LIST, PROSE: Text}


# Names of providers: answers of the service carry uuids, people read names.


_FEW_TREES = 20


def in_trees(client: Client, roots: Collection[str]) -> Mapping[str, str]:
    """Return the names, by uuid, of all providers in the trees of these roots."""
    # Each call is short, one for all providers is long; many short ones take longer than that.
    return _names(
        client, [[]] if len(roots) > _FEW_TREES else [[("in_tree", root)] for root in sorted(roots)]
    )


def of(client: Client, uuids: Collection[str]) -> Mapping[str, str]:
    """Return the names of these providers, by uuid."""
    return _names(client, [[("uuid", uuid)] for uuid in sorted(uuids)])


def _names(client: Client, queries: Iterable[Pairs]) -> dict[str, str]:
    return {
        provider["uuid"]: provider["name"]
        for query in queries
        for provider in client.get("/resource_providers", query)["resource_providers"]
    }


def provider(client: Client, uuid_or_name: str) -> Mapping[str, Any]:
    """Return the entry of one provider in the list of all. Raises PlacementError if there is none."""
    uuid = normalize_uuid(uuid_or_name)
    query = ("name", uuid_or_name) if uuid is None else ("uuid", uuid)
    found = client.get("/resource_providers", [query])["resource_providers"]
    # To the service an empty name is no filter at all.
    if not (uuid_or_name and found):
        raise PlacementError(f"{uuid_or_name}: no such resource provider")
    entry: Mapping[str, Any] = found[0]
    return entry


# Names of providers that differ in a number only, as one: core-0-[1-12].


Held = Mapping[str, int]
_NUMBERED = re.compile(r"(.*\D)(0|[1-9][0-9]*)", re.DOTALL)


def folded(held: Iterable[tuple[str, Held]]) -> Iterator[tuple[str, Held, int]]:
    """Yield (name, amounts of each, how many) for what is held of providers; alike ones are one entry."""
    groups: dict[tuple[str, tuple[tuple[str, int], ...]], list[str]] = {}
    for name, amounts in held:
        numbered = _NUMBERED.fullmatch(name)
        stem = numbered[1] if numbered else name
        groups.setdefault((stem, tuple(sorted(amounts.items()))), []).append(name)
    for (stem, each), names in groups.items():
        if len(names) == 1:
            yield names[0], dict(each), 1
        else:
            numbers = format_cpu_list(int(name.removeprefix(stem)) for name in names)
            yield f"{stem}[{numbers}]", dict(each), len(names)
