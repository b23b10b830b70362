"""The base classes of all commands: some do something, others list rows, or show one thing.

cliff looks for plugins of every command in all installed packages. Here are none, and the search would take
longer than most commands do, so commands and formatters are wired by hand.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from abc import abstractmethod
from argparse import Action, ArgumentError, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from cliff.command import Command
from cliff.formatters.json_format import JSONFormatter

from placement.client import arguments as client_arguments
from placement.client.catalog import COMMANDS, PREFIX
from placement.client.cells import TextCell
from placement.client.formats import Csv, Shell, Text, Value, Yaml
from placement.client.tables import ShownTable, WrappedTable, heading
from placement.client.terminal import harmless
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import meant, near

if TYPE_CHECKING:
    from placement.client.client import Client


# How argparse begins what it says of options that it does not know.
_UNRECOGNIZED = "unrecognized arguments: "


class ActionCommand(Command):
    """A command without plugins that has the service at hand; it does something and prints little."""

    arguments: ClassVar[Sequence[client_arguments.Argument]] = ()
    explains_queries: ClassVar[bool] = False
    """Whether its help has the parameters of queries."""
    auth_required: ClassVar[bool] = True
    """Whether it asks the service, so that the `openstack` client has to sign in."""
    exit_status = 0
    """How the command ends if nothing goes wrong."""

    def __init__(self, app: Any, app_args: Namespace | None, cmd_name: str | None = None) -> None:
        # With the name cliff would look for plugins.
        super().__init__(app, app_args)
        self.cmd_name = cmd_name
        self.explained: list[client_arguments.ExplainedArgument] = []
        """The arguments of the parser, except for --help."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        prog_name = getattr(self.app, "program", None) or prog_name
        parser: ArgumentParser = super().get_parser(prog_name)
        self.add_arguments(parser)
        # Options may stand between parameters of a query.
        vars(parser)["parse_args"] = parser.parse_intermixed_args
        vars(parser)["error"] = partial(self._refuse, parser)
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = _filled(self.get_description())
        parser.epilog = _filled("\n\n".join(self.notes(prog_name)))
        return parser

    def _refuse(self, parser: ArgumentParser, message: str) -> NoReturn:
        """Print the usage and what is wrong with the arguments, with the options that were meant; exit."""
        _, is_unknown, words = message.partition(_UNRECOGNIZED)
        options = {name for each in self.explained for name in each.action.option_strings}
        # The dashes would make all options alike.
        by_word = {name.lstrip("-"): name for name in options}
        like: list[str] = []
        is_value = False
        for word in words.split() if is_unknown else ():
            name = word.partition("=")[0]
            if name.startswith("-"):
                like += [by_word[each] for each in near(name.lstrip("-"), by_word, 1)]
            elif not (like or is_value) and "--cluster" in options:
                like.append(f"--cluster {word}")
            is_value = name.startswith("-")
        ArgumentParser.error(parser, f"{message}{meant(dict.fromkeys(like))}")

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments of the command to its parser."""
        self.explained += client_arguments.add_explained(parser, self.arguments)

    def notes(self, prog_name: str) -> list[str]:
        """Return the paragraphs below the arguments in the help: parameters of queries, and an example."""
        if not self.cmd_name:
            return []
        example = COMMANDS[self.cmd_name.removeprefix(f"{PREFIX} ")].example
        paragraphs = [f"example: {prog_name} {example}".rstrip()]
        if self.explains_queries:
            has_limit = self.has_option("--limit")
            rows = [row for row in client_arguments.GRAMMAR if has_limit or not row[0].startswith("limit")]
            table = "\n".join(f"  {example:34}{meaning}" for example, meaning in rows)
            paragraphs = ["the most used parameters:", table, *paragraphs]
        return paragraphs

    def has_option(self, name: str) -> bool:
        """Return whether the command, with its parser made, has an option of this name."""
        return any(name in each.action.option_strings for each in self.explained)

    def get_epilog(self) -> str:
        """Return nothing, as cliff would name the package that a command comes from."""
        return ""

    def run(self, parsed_args: Namespace) -> int:
        """Run the command and return how it ends. Raises PlacementError."""
        try:
            return self.act(parsed_args) or self.exit_status
        except client_arguments.UsageError as error:
            self.app.LOG.error(error)
            return error.exit_status

    def act(self, parsed_args: Namespace) -> int:
        """Do what the command is for, and return how it ends if that is known."""
        return self.take_action(parsed_args) or 0

    @property
    def client(self) -> Client:
        """Return the service that --url names, or that the `openstack` client is signed in to."""
        manager = getattr(self.app, "client_manager", None)
        if manager is not None:
            client: Client = manager.placement_forest
            return client
        from placement.client.client import Client

        return Client(self.app.options.url, self.app.options.token)

    def fail(self, text: str) -> None:
        """Print an error about a part of the work; the command goes on, and ends with 1."""
        self.app.LOG.error(text)
        self.exit_status = 1

    def confirm(self, question: str, meaning: str) -> None:
        """Ask at the terminal whether to go on; `meaning` says why there must be --yes without one.

        Raises UsageError without a terminal, PlacementError for any other answer than yes.
        """
        if not (self.app.stdin.isatty() and self.app.stderr.isatty()):
            raise client_arguments.UsageError(
                f"--yes: is needed, as there is no terminal to ask at; {meaning}"
            )
        self.app.stderr.write(f"{question} [y/N] ")
        self.app.stderr.flush()
        if self.app.stdin.readline().strip().lower() not in ("y", "yes"):
            raise PlacementError("not confirmed; nothing was written")

    def note(self, text: str) -> None:
        """Print a note to the person at the terminal, where no program reads it."""
        print(harmless(text), file=self.app.stderr)


def _filled(text: str) -> str:
    """Return a text in lines that fit the help of a parser; paragraphs that are indented keep their lines."""
    # The width of argparse, which takes two columns for itself.
    fill = partial(textwrap.fill, width=max(shutil.get_terminal_size().columns - 2, 11))
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else fill(" ".join(each.split())) for each in paragraphs)


_TABLE, _WIDE = "table", "wide"
_LIST = {"json": JSONFormatter, _TABLE: WrappedTable, "value": Value, "yaml": Yaml, "csv": Csv}


class _Output(ActionCommand):
    """A command that prints rows or fields in one of several formats."""

    formatters: ClassVar[Mapping[str, Any]] = _LIST
    default_format = _TABLE

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments, and around them the options of the output, which help folds away."""
        options = client_arguments.FoldedOptions(parser, self.explained)
        self.add_formats(options)
        super().add_arguments(parser)
        self.add_output_options(options)

    def add_formats(self, options: client_arguments.FoldedOptions) -> None:
        """Add the options that choose format and columns, and the options of each format."""
        options.add_argument(
            *("-f", "--format", "-o"),
            dest="formatter",
            choices=self.format_names(),
            default=self.default_format,
            help=f"the output format, defaults to {self.default_format}",
        )
        options.add_argument(
            *("-c", "--column"),
            action="append",
            default=[],
            dest="columns",
            metavar="COLUMN",
            help="specify the column(s) to include, can be repeated to show multiple columns",
        )
        for make in self.formatters.values():
            make().add_argument_group(options)

    def add_output_options(self, options: client_arguments.FoldedOptions) -> None:
        """Add further options that choose the output."""

    def format_names(self) -> list[str]:
        """Return the formats that can be asked for."""
        return sorted(self.formatters)

    def notes(self, prog_name: str) -> list[str]:
        """Return the paragraphs below the arguments, with the options of the output in short."""
        more = ", --watch" if self.has_option("--watch") else ""
        output = f"output: -o FORMAT ({', '.join(self.format_names())}), -c COLUMN{more}"
        return [*super().notes(prog_name), f"{output}; the manual page lists all options"]

    def act(self, parsed_args: Namespace) -> int:
        names, values = self.take_action(parsed_args)
        self.produce_output(parsed_args, names, values)
        return 0

    @abstractmethod
    def produce_output(self, parsed_args: Namespace, column_names: Sequence[str], data: Any) -> None:
        """Print what the action returned."""


def _is_chosen(parsed_args: Namespace, names: Sequence[str]) -> list[bool]:
    """Return for each column whether it is shown. Raises UsageError for a chosen one that is not there."""
    if not parsed_args.columns:
        return [True] * len(names)
    _refuse_unknown_columns("-c", parsed_args.columns, names)
    wanted = set(map(_column_key, parsed_args.columns))
    return [_column_key(name) in wanted for name in names]


def _refuse_unknown_columns(option: str, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise UsageError for the first of some columns that is not among the names, with what was meant."""
    known = set(map(_column_key, names))
    for column in columns:
        if _column_key(column) not in known:
            word = column.lower().replace(" ", "_")
            like = near(word, names) or [name for name in names if word in name.lower()][:_MOST_MEANT]
            there_are = f"; columns are {', '.join(names)}"
            raise client_arguments.UsageError(
                f"{option} {column}: there is no such column{meant(like) or there_are}"
            )


def _column_key(name: str) -> str:
    """Return one text for a column, whether its name is given or its heading."""
    return heading(name.lower().replace(" ", "_"))


class Details(_Output):
    """A command that prints the fields of one thing."""

    formatters: ClassVar[Mapping[str, Any]] = {**_LIST, "shell": Shell}

    def filled(self, parsed_args: Namespace, fields: Mapping[str, object]) -> ShownTable:
        """Return names and values; for people without the empty ones, unless columns are asked for."""
        if parsed_args.formatter == _TABLE and not parsed_args.columns:
            fields = {name: value for name, value in fields.items() if value not in (None, "") and str(value)}
        return tuple(fields), tuple(fields.values())

    def produce_output(self, parsed_args: Namespace, column_names: Sequence[str], data: Any) -> None:
        """Print the fields that are chosen."""
        chosen = _is_chosen(parsed_args, column_names)
        names, values = list(compress(column_names, chosen)), list(compress(data, chosen))
        self.formatters[parsed_args.formatter]().emit_one(names, values, self.app.stdout, parsed_args)


class _Direction(Action):
    """An option for one of two orders.

    argparse 3.11 cannot write the usage of a command if help leaves out all options of an exclusive group.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, const: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, const=const, help=help)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, *_: object) -> None:
        before = getattr(namespace, self.dest)
        if before not in (None, self.const):
            raise ArgumentError(self, f"not allowed with argument --sort-{before}")
        setattr(namespace, self.dest, self.const)


_WATCH_SECONDS = 2
# The cursor goes home, and what is below it goes.
_CLEAR = "\033[H\033[J"
_MOST_MEANT = 3
ENOUGH = 1000
"""How many more entries are counted at most, so that no fleet makes an answer for people large."""
_ListEntry = TypeVar("_ListEntry")


class Listing(_Output):
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
    _rest = ""

    def format_names(self) -> list[str]:
        return [*super().format_names(), _WIDE]

    def add_formats(self, options: client_arguments.FoldedOptions) -> None:
        """Add the options of formats, and the order of the rows."""
        super().add_formats(options)
        options.add_argument(
            "--sort-column",
            action="append",
            default=[],
            dest="sort_columns",
            metavar="SORT_COLUMN",
            help="specify the column(s) to sort the data (columns specified first have a priority), column "
            "names are case-insensitive and accept underscores for spaces, can be repeated",
        )
        for direction in ("ascending", "descending"):
            options.add_argument(
                f"--sort-{direction}",
                action=_Direction,
                dest="sort_direction",
                const=direction,
                help=f"sort the column(s) in {direction} order",
            )

    def add_output_options(self, options: client_arguments.FoldedOptions) -> None:
        """Add the choice of all columns and, where rows change by themselves, the repetition."""
        options.add_argument(
            "--wide", action="store_true", help="show all columns, however narrow the terminal is; -o wide"
        )
        if self.nothing:
            options.add_argument(
                "-w",
                "--watch",
                type=client_arguments.positive,
                nargs="?",
                const=_WATCH_SECONDS,
                metavar="SECONDS",
                help="list again every SECONDS (default %(const)s), until Ctrl-C",
            )

    def run(self, parsed_args: Namespace) -> int:
        """List the rows, again and again if that is asked for, and return how it ends."""
        self._choose_format(parsed_args)
        status = self._list(parsed_args)
        while status == 0 and getattr(parsed_args, "watch", None):
            time.sleep(parsed_args.watch)
            self.app.stdout.write(_CLEAR if self.app.stdout.isatty() else "\n")
            status = self._list(parsed_args)
        return status

    def _choose_format(self, parsed_args: Namespace) -> None:
        """Let the arguments say what formats read: which columns may be left out, and the format itself."""
        parsed_args.left_out_first, parsed_args.kept = self.left_out_first, self.kept
        parsed_args.only_wide = self.only_wide
        if parsed_args.formatter == _WIDE:
            parsed_args.formatter, parsed_args.wide = _TABLE, True
        if parsed_args.formatter == self.default_format and (parsed_args.columns or parsed_args.wide):
            # A choice of columns asks for rows.
            parsed_args.formatter = _TABLE

    def _list(self, parsed_args: Namespace) -> int:
        self._rest = ""
        status = super().run(parsed_args)
        if self._rest:
            print(self._rest, file=self.app.stdout)
        self.app.stdout.flush()
        return status

    def produce_output(self, parsed_args: Namespace, column_names: Sequence[str], data: Any) -> None:
        """Print the rows; a note says so if there are none."""
        rows = iter(self.in_order(parsed_args, column_names, data))
        first = list(islice(rows, 1))
        if self.nothing and not first:
            is_part = any(getattr(parsed_args, name) is not None for name in self.filters)
            self.note(f"No {'such ' if is_part else ''}{self.nothing.format(**vars(parsed_args))}.")
        chosen = _is_chosen(parsed_args, column_names)
        shown = (list(compress(row, chosen)) for row in chain(first, rows))
        formatter = self.formatters[parsed_args.formatter]()
        formatter.emit_list(list(compress(column_names, chosen)), shown, self.app.stdout, parsed_args)

    def for_people(self, parsed_args: Namespace) -> bool:
        """Return whether a person reads the output, and not a program."""
        return parsed_args.formatter in (_TABLE, self.default_format)

    def first(self, parsed_args: Namespace, entries: Iterable[_ListEntry], most: int) -> Iterable[_ListEntry]:
        """Return the entries, for people only the first; the number of the others follows the output."""
        if not self.for_people(parsed_args):
            return entries
        begun = list(islice(entries, most + ENOUGH))
        left = len(begun) - most
        if left > 0:
            at_least = "at least " if left == ENOUGH else ""
            self._rest = f"... {at_least}{left} more; --limit N shows more"
        return begun[:most]

    def cut(self, parsed_args: Namespace, entries: Iterable[_ListEntry], most: int) -> Iterable[_ListEntry]:
        """Return the first entries; for people the output ends with a hint if there are others."""
        begun = list(islice(entries, most + 1))
        if self.for_people(parsed_args) and len(begun) > most:
            self._rest = "... there are more; --limit N shows more"
        return begun[:most]

    def in_order(
        self, parsed_args: Namespace, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> Iterable[tuple[Any, ...]]:
        """Return the rows in the order of --sort-column; cells without a value come last in either order.

        Raises UsageError for a column that is not there.
        """
        names = list(map(_column_key, columns))
        _refuse_unknown_columns("--sort-column", parsed_args.sort_columns, columns)
        falls = parsed_args.sort_direction == "descending"
        for column in reversed(parsed_args.sort_columns):
            keys = partial(_sortable, at=names.index(_column_key(column)), rises=not falls)
            rows = list(rows)
            # Cells of several kinds have no order.
            with suppress(TypeError):
                rows.sort(key=keys, reverse=falls)
        return rows

    def entries(
        self,
        parsed_args: Namespace,
        path: str,
        member: str,
        cursor: str,
        wanted: Mapping[str, str | None],
        most: int | None = None,
        look: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Iterable[dict[str, Any]]:
        """Return the entries of the list at a path that meet all that is `wanted`, at most --limit.

        `member` holds the entries of a page, `cursor` asks for the page after `next`. The first page is read
        at once, so that a refusal comes before anything is written, and `look` gets the whole of it. People
        see `most` without a limit.
        """
        limit, query = parsed_args.limit, client_arguments.given(**wanted).items()
        entries = self.client.entries(path, member, cursor, query, limit, look)
        return islice(entries, limit) if most is None else self.bounded(parsed_args, entries, most)

    def bounded(
        self, parsed_args: Namespace, entries: Iterable[_ListEntry], most: int
    ) -> Iterable[_ListEntry]:
        """Return the entries, at most --limit; people see `most` without a limit."""
        if parsed_args.limit is not None:
            return islice(entries, parsed_args.limit)
        return self.first(parsed_args, entries, most)


def _sortable(row: Sequence[Any], at: int, *, rises: bool) -> tuple[bool, Any]:
    value = row[at].machine_readable() if isinstance(row[at], TextCell) else row[at]
    return (value is None) == rises, value


DRAWING = "tree"


class DrawingCommand(Listing):
    """A command that draws, or prints the rows behind the drawing."""

    formatters: ClassVar[Mapping[str, Any]] = {**_LIST, DRAWING: Text}
    default_format = DRAWING


PROSE = "text"


class Prose(Listing):
    """A command that prints sentences, or the rows behind them."""

    formatters: ClassVar[Mapping[str, Any]] = {**_LIST, PROSE: Text}
    default_format = PROSE
