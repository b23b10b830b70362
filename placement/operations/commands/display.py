"""What commands are made of: doing something, listing rows, showing one thing.

cliff looks for plugins of every command in all installed packages. Here are none, and the search would take
longer than most commands do, so commands and formatters are wired by hand.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cliff.command import Command
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from cliff.lister import Lister
from cliff.show import ShowOne

from placement.operations.commands.arguments import Argument
from placement.operations.commands.formats import Csv, SingleCsv, Table, Text, Yaml

if TYPE_CHECKING:
    from placement.operations.client import Client


_TABLE = "table"
_BOTH = {"json": JSONFormatter, _TABLE: Table, "value": ValueFormatter, "yaml": Yaml}
_LIST = {**_BOTH, "csv": Csv}
_SINGLE = {**_BOTH, "csv": SingleCsv, "shell": ShellFormatter}
DRAWING = "tree"
PROSE = "text"
ENOUGH = 1000
"""So many more are enough to be counted, and no fleet makes an answer for people large."""
_Entry = TypeVar("_Entry")


class _Formatters:
    """Formatters by name, as cliff asks for them."""

    def __init__(self, classes: Mapping[str, Any]) -> None:
        self._found = {name: SimpleNamespace(obj=formatter()) for name, formatter in classes.items()}

    def names(self) -> list[str]:
        """The names to choose from."""
        return list(self._found)

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(self._found.values())

    def __getitem__(self, name: str) -> SimpleNamespace:
        return self._found[name]


class _Wired(Command):
    """No plugins; the service at hand."""

    arguments: ClassVar[Sequence[Argument]] = ()
    auth_required: ClassVar[bool] = True
    """Whether it asks the service, so that the `openstack` client has to sign in."""
    exit_status = 0
    """How the command ends if nothing goes wrong."""
    _hooks: Any

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """The parser of the command's arguments."""
        parser: ArgumentParser = super().get_parser(prog_name)
        for add in self.arguments:
            add(parser)
        return parser

    def run(self, parsed_args: Namespace) -> int:
        """Run it; returns the exit status."""
        return super().run(parsed_args) or self.exit_status

    def _load_hooks(self) -> None:
        self._hooks = []

    def get_epilog(self) -> str:
        """Nothing: cliff would tell which package a command comes from."""
        return ""

    @property
    def client(self) -> Client:
        """The service that --url names, or that the `openstack` client is signed in to."""
        manager = getattr(self.app, "client_manager", None)
        if manager is not None:
            found: Client = manager.placement_forest
            return found
        from placement.operations.client import Client

        return Client(self.app.options.url, self.app.options.token)

    def note(self, text: str) -> None:
        """Print a note to the person at the terminal, where no program reads it."""
        print(text, file=self.app.stderr)


class Action(_Wired):
    """A command that does something and prints little or nothing."""


class _Rows(_Wired, Lister):
    """A command that prints rows, or what people read in their place."""

    left_out_first: ClassVar[Sequence[str]] = ()
    """The columns that narrow terminals can do without, the least important one first."""
    says_how_many = "--limit N"
    _form = _TABLE
    _rest = ""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """The parser of the command's arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--wide", action="store_true", help="show all columns, however narrow the terminal is"
        )
        return parser

    @property
    def formatter_default(self) -> str:
        """The form for people."""
        return self._form

    def run(self, parsed_args: Namespace) -> int:
        """Run it; returns the exit status."""
        parsed_args.left_out_first = self.left_out_first
        if parsed_args.formatter == self._form and (parsed_args.columns or parsed_args.wide):
            # Whoever chooses columns wants rows.
            parsed_args.formatter = _TABLE
        status = super().run(parsed_args)
        if self._rest:
            print(self._rest, file=self.app.stdout)
        return status

    def for_people(self, parsed_args: Namespace) -> bool:
        """Whether a person reads the output, and not a program."""
        return parsed_args.formatter in (_TABLE, self._form)

    def first(self, parsed_args: Namespace, entries: Iterable[_Entry], most: int) -> Iterable[_Entry]:
        """The entries, for people only the first ones; the number of the others follows the output."""
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


class Drawing(_InLines):
    """A command that draws."""

    _form = DRAWING


class Prose(_InLines):
    """A command that tells in sentences."""

    _form = PROSE
