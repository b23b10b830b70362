"""The formats of rows and fields beside tables: CSV, bare values, variables of a shell, YAML, text."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter

from placement.client.tables import AnyRows, width_of
from placement.client.terminal import harmless
from placement.common.texts import printable, spreadsheet_cell


class Csv(CSVLister):
    """A CSV format with cells of plain text: no list as Python writes it, and nothing that is calculated."""

    def emit_list(self, column_names: Sequence[str], data: AnyRows, stdout: TextIO, parsed_args: Any) -> None:
        """Write a header and the rows, one at a time: a list may be long."""
        rows = ([spreadsheet_cell(_in_one_line(cell)) for cell in row] for row in data)
        super().emit_list(column_names, rows, stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        self.emit_list(column_names, [data], stdout, parsed_args)


def _in_one_line(cell: Any) -> Any:
    """Return a number or a time as programs read it, and what has several parts as text."""
    if not isinstance(cell, FormattableColumn):
        return cell
    value = cell.machine_readable()
    return "; ".join(str(cell).splitlines()) if isinstance(value, Mapping | list | tuple) else value


class Value(ValueFormatter):
    """A format of bare values, a line for each row; what is not printable is written out."""

    def emit_list(self, column_names: Sequence[str], data: AnyRows, stdout: TextIO, parsed_args: Any) -> None:
        super().emit_list(column_names, ([_bare(cell) for cell in row] for row in data), stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        super().emit_one(column_names, [_bare(cell) for cell in data], stdout, parsed_args)


def _bare(cell: Any) -> str:
    return printable(str(cell.machine_readable() if isinstance(cell, FormattableColumn) else cell))


# What a POSIX shell takes for itself between double quotes.
_OF_SHELLS = re.compile(r"([\\$`])")


class Shell(ShellFormatter):
    """A format of variables that a shell may evaluate: a value `$(reboot)` stays a text."""

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        # The base quotes double quotes.
        quoted = [_OF_SHELLS.sub(r"\\\1", _bare(value)) for value in data]
        super().emit_one(column_names, quoted, stdout, parsed_args)


class Yaml(YAMLFormatter):
    """A YAML format that repeats what occurs twice, as anchors help no reader."""

    def emit_list(self, column_names: Sequence[str], data: AnyRows, stdout: TextIO, parsed_args: Any) -> None:
        super().emit_list(column_names, map(_apart, data), stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        super().emit_one(column_names, _apart(data), stdout, parsed_args)


def _apart(row: Sequence[Any]) -> list[Any]:
    """Return the cells of a row as they are in JSON, none of which shares a part with another."""
    plain = [cell.machine_readable() if isinstance(cell, FormattableColumn) else cell for cell in row]
    apart: list[Any] = json.loads(json.dumps(plain))
    return apart


_ESCAPE = "\033"


class Text(ValueFormatter):
    """A format of lines of text; a line that is longer than the terminal is wide goes on below, indented."""

    def emit_list(self, column_names: Sequence[str], data: AnyRows, stdout: TextIO, parsed_args: Any) -> None:
        width = width_of(stdout, parsed_args)
        for line in (harmless(line) for (line,) in data):
            written = [line]
            # Coloured lines are drawings, which cannot be read in pieces.
            if width is not None and len(line) > width and _ESCAPE not in line:
                indent = len(line) - len(line.lstrip(" 0123456789")) + 2
                written = textwrap.wrap(
                    line,
                    width,
                    subsequent_indent=" " * indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            stdout.write("\n".join(written) + "\n")
