"""The base of all commands: commands that do something, list rows, or show one thing.

cliff looks for plugins of every command in all installed packages. Here are none, and the search would take
longer than most commands do, so commands and formatters are wired by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cliff.command import Command
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from cliff.lister import Lister
from cliff.show import ShowOne

from placement.client.formats import Csv, SingleCsv, Text, WrappedTable, Yaml
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.cpuset import format_cpu_list

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


CLUSTER = argument("cluster", help="name of the cluster")


def positive(text: str) -> int:
    """Return a whole number from 1 on. Raises ArgumentTypeError, which comes with the usage."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def limit(help: str, default: int | None = None) -> Argument:
    """Return the option that bounds how much is listed."""
    return argument("--limit", type=positive, metavar="N", help=help, default=default)


def port_number(text: str) -> int:
    """Return a port to listen on, but not 0, which would be any. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to 65535, not {text!r}")
    return int(text)


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
        reason = error.strerror if isinstance(error, OSError) else None
        raise PlacementError(f"{name}: {reason or error}") from None


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
_BOTH = {"json": JSONFormatter, _TABLE: WrappedTable, "value": ValueFormatter, "yaml": Yaml}
_LIST = {**_BOTH, "csv": Csv}
_SINGLE = {**_BOTH, "csv": SingleCsv, "shell": ShellFormatter}
DRAWING = "tree"
PROSE = "text"
ENOUGH = 1000
"""How many more entries are counted at most, so that no fleet makes an answer for people large."""
_Entry = TypeVar("_Entry")


class _Formatters:
    """A collection of formatters by name, as cliff asks for them."""

    def __init__(self, classes: Mapping[str, Any]) -> None:
        self._found = {name: SimpleNamespace(obj=formatter()) for name, formatter in classes.items()}

    def names(self) -> list[str]:
        """Return the names to choose from."""
        return list(self._found)

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(self._found.values())

    def __getitem__(self, name: str) -> SimpleNamespace:
        return self._found[name]


class _Wired(Command):
    """A command without plugins that has the service at hand."""

    arguments: ClassVar[Sequence[Argument]] = ()
    auth_required: ClassVar[bool] = True
    """Whether it asks the service, so that the `openstack` client has to sign in."""
    exit_status = 0
    """How the command ends if nothing goes wrong."""
    _hooks: Any

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Return the parser of the command's arguments."""
        parser: ArgumentParser = super().get_parser(prog_name)
        for add in self.arguments:
            add(parser)
        return parser

    def run(self, parsed_args: Namespace) -> int:
        """Run the command and return its exit status."""
        return super().run(parsed_args) or self.exit_status

    def _load_hooks(self) -> None:
        self._hooks = []

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


class ActionCommand(_Wired):
    """A command that does something and prints little or nothing."""


class _Rows(_Wired, Lister):
    """A command that prints rows, or what people read in their place."""

    left_out_first: ClassVar[Sequence[str]] = ()
    """The columns that narrow terminals can do without, the least important one first."""
    says_how_many = "--limit N"
    _form = _TABLE
    _rest = ""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Return the parser of the command's arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--wide", action="store_true", help="show all columns, however narrow the terminal is"
        )
        return parser

    @property
    def formatter_default(self) -> str:
        """Return the form for people."""
        return self._form

    def run(self, parsed_args: Namespace) -> int:
        """Run the command and return its exit status."""
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
            self._rest = (
                f"... {'at least ' if left == ENOUGH else ''}{left} more; {self.says_how_many} shows more"
            )
        return begun[:most]


class Listing(_Rows):
    """A command that prints rows."""

    def _load_formatter_plugins(self) -> Any:
        return _Formatters(_LIST)


class Details(_Wired, ShowOne):
    """A command that prints the fields of one thing."""

    def _load_formatter_plugins(self) -> Any:
        return _Formatters(_SINGLE)


class _InLines(_Rows):
    """A command that writes lines of text, or prints the rows behind them."""

    def _load_formatter_plugins(self) -> Any:
        return _Formatters({**_LIST, self._form: Text})


class DrawingCommand(_InLines):
    """A command that draws."""

    _form = DRAWING


class Prose(_InLines):
    """A command that prints sentences."""

    _form = PROSE


# Names of providers: answers of the service carry uuids, people read names.


_FEW_TREES = 20


def in_trees(client: Client, roots: Collection[str]) -> Mapping[str, str]:
    """Return the names, by uuid, of all providers in the trees of these roots."""
    # Each call is short, one for all providers is long; many short ones take longer than that.
    if len(roots) > _FEW_TREES:
        return _names(client, [])
    found: dict[str, str] = {}
    for root in sorted(roots):
        found.update(_names(client, [("in_tree", root)]))
    return found


def of(client: Client, uuids: Collection[str]) -> Mapping[str, str]:
    """Return the names of these providers, by uuid."""
    found: dict[str, str] = {}
    for uuid in sorted(uuids):
        found.update(_names(client, [("uuid", uuid)]))
    return found


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


def _names(client: Client, query: list[tuple[str, str]]) -> dict[str, str]:
    listed = client.get("/resource_providers", query)["resource_providers"]
    return {provider["uuid"]: provider["name"] for provider in listed}


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
