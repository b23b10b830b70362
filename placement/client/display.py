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
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cliff.command import Command
from cliff.formatters.json_format import JSONFormatter
from cliff.lister import Lister
from cliff.show import ShowOne
from stevedore.extension import Extension, ExtensionManager

from placement.client.catalog import COMMANDS, PREFIX
from placement.client.formats import Csv, Shell, Text, TextCell, Value, WrappedTable, Yaml, harmless, heading
from placement.client.suggestions import improved
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.cpus import format_cpu_list

if TYPE_CHECKING:
    from placement.client.client import Client


# Arguments of commands: whole numbers, query parameters (KEY=VALUE), and files that are read.


USAGE_EXIT = 2
"""How a command ends whose arguments make no sense."""


class UsageError(PlacementError):
    """An error about the arguments of a command, which argparse cannot find."""


Argument = Callable[[argparse.ArgumentParser], object]
"""A function that adds an argument to a parser."""
Pairs = list[tuple[str, str]]
STANDARD_INPUT = "-"
# A query by examples, in the words of docs/candidates.md.
GRAMMAR = (
    ("resources=VCPU:2,MEMORY_MB:4096", "amounts, each from one provider of a host"),
    ("resources_net=SRIOV_NET_VF:1", "a group, all from one provider; any suffix"),
    ("required=CUSTOM_SSD,!CUSTOM_OLD", "traits that it has, and has not; or in:A,B"),
    ("member_of=in:rack-1,rack-2", "in one of these; !rack-1: not in it"),
    ("in_tree=UUID", "of the host that this provider belongs to"),
    ("group_policy=isolate", "groups from different providers; or none"),
    ("same_subtree=_net,_cpus", "groups from a provider and what is below it"),
    ("root_required=CUSTOM_GOLD", "traits of the host"),
    ("split_cpus=PCPU", "several providers give it for group _cpus"),
    ("cluster=edge", "in this cluster only"),
    ("order_by=pack", "the fullest hosts first; or spread"),
    ("prefer=CUSTOM_SSD", "hosts with this trait or aggregate first"),
    ("limit=5", "at most so many candidates"),
)
"""Parameters of a query, each with an example and its meaning."""


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
IN_CLUSTER = argument("--cluster", help="in this cluster only; cluster=NAME says the same")


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
    if key == "limit":
        try:
            positive(value)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"limit: {error}") from None
    return key, value


def take_cluster(parsed: argparse.Namespace, words: Iterable[str]) -> list[str]:
    """Take cluster=NAME out of words, as --cluster; return the other words. Raises UsageError for two."""
    return _take("cluster", parsed, words)


def _take(option: str, parsed: argparse.Namespace, words: Iterable[str]) -> list[str]:
    rest = []
    for word in words:
        key, _, value = word.partition("=")
        if key != option:
            rest.append(word)
            continue
        before = getattr(parsed, option)
        if before is not None and str(before) != value:
            raise UsageError(f"{option}: {before} and {value} are two")
        setattr(parsed, option, value)
    return rest


def query_of(parsed: argparse.Namespace) -> Pairs:
    """Return the query parameters, with --cluster and --limit. Raises UsageError for two of one."""
    words = [f"{key}={value}" for key, value in parsed.query]
    options = [option for option in ("limit", "cluster") if hasattr(parsed, option)]
    for option in options:
        words = _take(option, parsed, words)
    query = [(key, value) for key, _, value in (word.partition("=") for word in words)]
    asked = given(**{option: getattr(parsed, option) for option in options})
    return [*query, *((option, str(value)) for option, value in asked.items())]


QUERY = argument("query", nargs="+", type=parameter, metavar="KEY=VALUE", help="query parameter, as below")


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

    text = read_bytes(name)
    try:
        return parse_yaml(text)
    except PlacementError as error:
        raise PlacementError(f"{name}: {error}") from None


def read_json(name: str) -> object:
    """Return the JSON in the file. Raises PlacementError naming the file."""
    try:
        document: object = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{name}: is no JSON: {error}") from None
    return document


_TABLE, _WIDE = "table", "wide"
_WATCH_SECONDS = 2
# The cursor goes home, and what is below it goes.
_CLEAR = "\033[H\033[J"
# Positional arguments and options come first; the other groups are of formats.
_GROUPS_OF_COMMANDS = 2
_FOLDED = "is_folded"
_LIST = {"json": JSONFormatter, _TABLE: WrappedTable, "value": Value, "yaml": Yaml, "csv": Csv}
DRAWING = "tree"
PROSE = "text"
ENOUGH = 1000
"""How many more entries are counted at most, so that no fleet makes an answer for people large."""
_PAGE = 1000
_Entry = TypeVar("_Entry")


class _Help(argparse.HelpFormatter):
    """A format of help without the options that are folded away, and with paragraphs."""

    def add_usage(self, usage: Any, actions: Iterable[Any], groups: Any, prefix: Any = None) -> None:
        """Add the usage without them."""
        shown = [action for action in actions if not hasattr(action, _FOLDED)]
        super().add_usage(usage, shown, groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """Add an argument unless it is folded away."""
        if not hasattr(action, _FOLDED):
            super().add_argument(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        # Tables keep their lines.
        return "\n\n".join(
            paragraph if paragraph.startswith(" ") else fill(paragraph, width, indent)
            for paragraph in text.split("\n\n")
        )


def pages_of(
    client: Client, path: str, member: str, cursor: str, query: Pairs, size: int = _PAGE
) -> Iterator[dict[str, Any]]:
    """Return all entries of a list that comes in pages of `size`; the first page is read at once."""
    query = [*query, ("limit", str(size))]

    def entries(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from page[member]
        while page["next"] is not None:
            page = client.get(path, [*query, (cursor, str(page["next"]))])
            yield from page[member]

    return entries(client.get(path, query))


class ActionCommand(Command):
    """A command without plugins that has the service at hand; it does something and prints little."""

    arguments: ClassVar[Sequence[Argument]] = ()
    explains_queries: ClassVar[bool] = False
    """Whether its help has the parameters of queries."""
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
        parser.formatter_class = _Help
        # Options may stand between parameters of a query.
        vars(parser)["parse_args"] = parser.parse_intermixed_args
        if self.cmd_name:
            example = COMMANDS[self.cmd_name.removeprefix(f"{PREFIX} ")].example
            parser.epilog = f"example: {prog_name} {example}".rstrip()
            if self.explains_queries:
                table = "\n".join(
                    f"  {example:34}{meaning}"
                    for example, meaning in GRAMMAR
                    if "--limit" in parser._option_string_actions or not example.startswith("limit")
                )
                parser.epilog = f"the most used parameters:\n\n{table}\n\n{parser.epilog}"
        return parser

    def run(self, parsed_args: Namespace) -> int:
        """Run the command and return how it ends. Raises PlacementError, with names that were meant."""
        try:
            return super().run(parsed_args) or self.exit_status
        except UsageError as error:
            self.app.LOG.error(error)
            return USAGE_EXIT
        except PlacementError as error:
            raise PlacementError(improved(str(error), lambda: self.client)) from error

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

    def fail(self, text: str) -> None:
        """Print an error about a part of the work; the command goes on, and ends with 1."""
        self.app.LOG.error(improved(text, lambda: self.client))
        self.exit_status = 1

    def note(self, text: str) -> None:
        """Print a note to the person at the terminal, where no program reads it."""
        print(harmless(text), file=self.app.stderr)


class _Output(ActionCommand):
    """A command that prints rows or fields in one of several formats."""

    _formatter_group: Any

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Return the parser, with the options of the output folded away from its help."""
        parser = super().get_parser(prog_name)
        chosen = parser._option_string_actions["--format"]
        chosen.option_strings = [*chosen.option_strings, "-o"]
        parser._option_string_actions["-o"] = chosen
        self.add_output_options(self._formatter_group)
        formats = ", ".join(map(str, chosen.choices or ()))
        more = ", --watch" if "--watch" in parser._option_string_actions else ""
        for group in parser._action_groups[_GROUPS_OF_COMMANDS:]:
            group.description = None
            for action in group._group_actions:
                vars(action)[_FOLDED] = True
        output = f"output: -o FORMAT ({formats}), -c COLUMN{more}; the manual page has all of it"
        parser.epilog = f"{parser.epilog}\n\n{output}"
        return parser

    @staticmethod
    def _normalize_column_name(column_name: str) -> str:
        """Return one text for a column, whether its name is given or its heading."""
        return heading(column_name.lower().replace(" ", "_"))

    def add_output_options(self, group: Any) -> None:
        """Add further options that choose the output."""


class Details(_Output, ShowOne):
    """A command that prints the fields of one thing."""

    _formatters: ClassVar[Mapping[str, Any]] = {**_LIST, "shell": Shell}

    def filled(self, parsed_args: Namespace, fields: Mapping[str, object]) -> tuple[Any, Any]:
        """Return names and values; for people without the empty ones, unless columns are asked for."""
        if parsed_args.formatter == _TABLE and not parsed_args.columns:
            fields = {name: value for name, value in fields.items() if value not in (None, "") and str(value)}
        return tuple(fields), tuple(fields.values())


class Listing(_Output, Lister):
    """A command that prints rows, or what people read in their place."""

    left_out_first: ClassVar[Sequence[str]] = ()
    """The columns that narrow terminals can do without, the least important one first."""
    kept: ClassVar[Sequence[str]] = ()
    """The columns that the command is about, which every table has."""
    only_wide: ClassVar[Sequence[str]] = ()
    """The columns that tables have on request only."""
    nothing: ClassVar[str] = ""
    """What there is none of if there are no rows, with options in braces: `pods in cluster {cluster}`.

    A command that has it lists what there is, so it can be repeated by --watch.
    """
    filters: ClassVar[Sequence[str]] = ()
    """The options that leave out some of what there is."""
    need_sort_by_cliff = False
    _formatters: ClassVar[Mapping[str, Any]] = _LIST
    _form = _TABLE
    _rest = ""

    def add_output_options(self, group: Any) -> None:
        """Add the choice of all columns and, where rows change by themselves, the repetition."""
        formats = next(action for action in group._group_actions if action.dest == "formatter")
        formats.choices = [*formats.choices, _WIDE]
        group.add_argument(
            "--wide", action="store_true", help="show all columns, however narrow the terminal is; -o wide"
        )
        if self.nothing:
            group.add_argument(
                "-w",
                "--watch",
                type=positive,
                nargs="?",
                const=_WATCH_SECONDS,
                metavar="SECONDS",
                help="list again and again, every %(const)s seconds unless it says otherwise, until Ctrl-C",
            )

    @property
    def formatter_default(self) -> str:
        return self._form

    def run(self, parsed_args: Namespace) -> int:
        parsed_args.left_out_first, parsed_args.kept = self.left_out_first, self.kept
        parsed_args.only_wide = self.only_wide
        if parsed_args.formatter == _WIDE:
            parsed_args.formatter, parsed_args.wide = _TABLE, True
        if parsed_args.formatter == self._form and (parsed_args.columns or parsed_args.wide):
            # A choice of columns asks for rows.
            parsed_args.formatter = _TABLE
        status = self._listed(parsed_args)
        while status == 0 and getattr(parsed_args, "watch", None):
            time.sleep(parsed_args.watch)
            self.app.stdout.write(_CLEAR if self.app.stdout.isatty() else "\n")
            status = self._listed(parsed_args)
        return status

    def _listed(self, parsed_args: Namespace) -> int:
        self._rest = ""
        status = super().run(parsed_args)
        if self._rest:
            print(self._rest, file=self.app.stdout)
        self.app.stdout.flush()
        return status

    def produce_output(self, parsed_args: Namespace, column_names: Sequence[str], data: Iterable[Any]) -> int:
        """Print the rows; a note says so if there are none."""
        rows = iter(self.in_order(parsed_args, column_names, data))
        first = list(islice(rows, 1))
        if self.nothing and not first:
            is_part = any(getattr(parsed_args, name) is not None for name in self.filters)
            self.note(f"No {'such ' if is_part else ''}{self.nothing.format(**vars(parsed_args))}.")
        return super().produce_output(parsed_args, column_names, chain(first, rows))

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
            self._rest = f"... {at_least}{left} more; --limit N shows more"
        return begun[:most]

    def in_order(
        self, parsed_args: Namespace, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> Iterable[tuple[Any, ...]]:
        """Return the rows in the order of --sort-column, what has no value at the end of rising ones."""
        names = list(map(self._normalize_column_name, columns))
        for column in reversed(parsed_args.sort_columns):
            if (name := self._normalize_column_name(column)) in names:
                keys = partial(_sortable, at=names.index(name))
                rows = list(rows)
                # Cells of several kinds have no order.
                with suppress(TypeError):
                    rows.sort(key=keys, reverse=parsed_args.sort_direction == "desc")
        return rows

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
        limit, query = parsed_args.limit, [*given(**wanted).items()]
        found = pages_of(self.client, path, member, cursor, query, min(limit or _PAGE, _PAGE))
        return islice(found, limit) if most is None else self.bounded(parsed_args, found, most)

    def bounded(self, parsed_args: Namespace, entries: Iterable[_Entry], most: int) -> Iterable[_Entry]:
        """Return the entries, at most --limit; people see `most` without a limit."""
        if parsed_args.limit is not None:
            return islice(entries, parsed_args.limit)
        return self.first(parsed_args, entries, most)


def _sortable(row: Sequence[Any], at: int) -> tuple[bool, Any]:
    value = row[at].machine_readable() if isinstance(row[at], TextCell) else row[at]
    return value is None, value


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
