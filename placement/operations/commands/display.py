"""What commands are made of: doing something, listing rows, showing one thing.

cliff looks for plugins of every command in all installed packages. Here are none, and the search would take
longer than most commands do, so commands and formatters are wired by hand.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.table import TableFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter
from cliff.lister import Lister
from cliff.show import ShowOne

from placement.operations.commands.arguments import Argument

if TYPE_CHECKING:
    from placement.operations.client import Client


class _Csv(CSVLister):
    """Rows whose cells are plain text: a spreadsheet has no use for Python's idea of a list."""

    def emit_list(
        self, column_names: Sequence[str], data: Iterable[Sequence[Any]], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write a header and the rows."""
        # One row at a time: a list may be long.
        rows = ([_in_one_line(cell) for cell in row] for row in data)
        super().emit_list(column_names, rows, stdout, parsed_args)


def _in_one_line(cell: object) -> object:
    return "; ".join(str(cell).splitlines()) if isinstance(cell, FormattableColumn) else cell


class _SingleCsv(_Csv):
    """One thing as a header and a row."""

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write both."""
        self.emit_list(column_names, [data], stdout, parsed_args)


_BOTH = {"json": JSONFormatter, "table": TableFormatter, "value": ValueFormatter, "yaml": YAMLFormatter}
_LIST = {**_BOTH, "csv": _Csv}
_SINGLE = {**_BOTH, "csv": _SingleCsv, "shell": ShellFormatter}
DRAWING = "tree"
PROSE = "text"


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
    _hooks: Any

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """The parser of the command's arguments."""
        parser: ArgumentParser = super().get_parser(prog_name)
        for add in self.arguments:
            add(parser)
        return parser

    def _load_hooks(self) -> None:
        self._hooks = []

    def get_epilog(self) -> str:
        """Nothing: cliff would tell which package a command comes from."""
        return ""

    @property
    def client(self) -> Client:
        """The service that --url names."""
        from placement.operations.client import Client

        return Client(self.app.options.url, self.app.options.token)

    def note(self, text: str) -> None:
        """Print a note to the person at the terminal, where no program reads it."""
        print(text, file=self.app.stderr)


class Action(_Wired):
    """A command that does something and prints little or nothing."""


class Listing(_Wired, Lister):
    """A command that prints rows."""

    def _load_formatter_plugins(self) -> Any:
        return _Formatters(_LIST)


class Details(_Wired, ShowOne):
    """A command that prints the fields of one thing."""

    def _load_formatter_plugins(self) -> Any:
        return _Formatters(_SINGLE)


class _InLines(_Wired, Lister):
    """A command that writes lines of text, or prints the rows behind them."""

    _form: str

    @property
    def formatter_default(self) -> str:
        """The lines."""
        return self._form

    def _load_formatter_plugins(self) -> Any:
        # The value formatter writes every row as a line.
        return _Formatters({**_LIST, self._form: ValueFormatter})


class Drawing(_InLines):
    """A command that draws."""

    _form = DRAWING


class Prose(_InLines):
    """A command that tells in sentences."""

    _form = PROSE
