"""The formats of rows and fields: tables that fit the terminal, CSV and YAML."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.table import TableFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter
from prettytable import PrettyTable

from placement.common.texts import printable, spreadsheet_cell

Rows = Iterable[Sequence[Any]]

_ESCAPE = "\033"
# What `painted` returned lately; a name that has the same characters shows what we show ourselves.
_COLOURED = re.compile("(\033\\[3[1-3]m[^\033]*\033\\[0m)")
_painted: set[str] = set()
_NUMBER = re.compile(r"(-?\d+(\.\d+)?(%| GiB| GB|/\d+)?)?")
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_BETWEEN = 3
"""What a column takes beside its text: a blank on both sides and a line."""


class Csv(CSVLister):
    """A CSV format with cells of plain text: no list as Python writes it, and nothing that is calculated."""

    def emit_list(self, column_names: Sequence[str], data: Rows, stdout: TextIO, parsed_args: Any) -> None:
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

    def emit_list(self, column_names: Sequence[str], data: Rows, stdout: TextIO, parsed_args: Any) -> None:
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

    def emit_list(self, column_names: Sequence[str], data: Rows, stdout: TextIO, parsed_args: Any) -> None:
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


class WrappedTable(TableFormatter):
    """A table as wide as the terminal: text is broken between words only, so names and UUIDs stay whole.

    Where that is too wide, columns are left out: `parsed_args.left_out_first`, then columns from the right,
    unless `--wide` or `-c` asks for them. The first column always stays.
    """

    def emit_list(self, column_names: Sequence[str], data: Rows, stdout: TextIO, parsed_args: Any) -> None:
        """Write a header and the rows; standard error tells what was left out."""
        names, cells = list(map(heading, column_names)), [[_lines(cell) for cell in row] for row in data]
        room = None if parsed_args.wide else _room(parsed_args, stdout)
        if not (cells or parsed_args.print_empty):
            return
        asked = parsed_args.wide or parsed_args.columns
        rare = () if asked else [*map(heading, parsed_args.only_wide)]
        shown = [at for at, name in enumerate(names) if name not in rare]
        if room is not None and not parsed_args.columns:
            first = list(map(heading, parsed_args.left_out_first))
            stay = set(map(heading, parsed_args.kept))
            order = [names.index(name) for name in first if name in names]
            order += [at for at in range(len(names) - 1, 0, -1) if at not in order and names[at] not in stay]
            for at in [at for at in order if at in shown]:
                if sum(_longest_word(names, cells, kept) + _BETWEEN for kept in shown) + 1 <= room:
                    break
                shown.remove(at)
        kept = [[row[at] for at in shown] for row in cells]
        # Columns of numbers stand right.
        right = [bool(cells) and all(_NUMBER.fullmatch("\n".join(row[at])) for row in cells) for at in shown]
        _write([names[at] for at in shown], kept, right, room, stdout)
        missing = [name for at, name in enumerate(names) if at not in shown and name not in rare]
        if missing:
            stdout.flush()
            print(f"Left out: {', '.join(missing)}; --wide shows all, -c COLUMN chooses.", file=sys.stderr)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        rows = [
            [[harmless(heading(name))], _lines(value)] for name, value in zip(column_names, data, strict=True)
        ]
        _write(["Field", "Value"], rows, [False, False], _room(parsed_args, stdout), stdout)


_HEADINGS = {"created_at": "Age", "memory_free_mib": "Memory free", "disk_free_gb": "Disk free"}
"""Headings of columns in which people read something else, such as how long ago in place of when."""
_AS_WRITTEN = {
    "uuid": "UUID",
    "uid": "UID",
    "url": "URL",
    "qos": "QoS",
    "cpu": "CPU",
    "cpus": "CPUs",
    "pcpu": "PCPU",
    "kubernetes": "Kubernetes",
}


def heading(name: str) -> str:
    """Return the name of a column as people read it: `qos_class` is `QoS class`."""
    if not name.islower() or name in _HEADINGS:
        return _HEADINGS.get(name, name)
    words = [_AS_WRITTEN.get(word, word) for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _write(
    names: Sequence[str],
    cells: Sequence[Sequence[list[str]]],
    right: Sequence[bool],
    room: int | None,
    stdout: TextIO,
) -> None:
    widths = [
        max(len(name), max((len(line) for row in cells for line in row[at]), default=0))
        for at, name in enumerate(names)
    ]
    if room is not None:
        least = [_longest_word(names, cells, at) for at in range(len(names))]
        spare = max(0, room - 1 - sum(width + _BETWEEN for width in least))
        # Columns that need little get it, columns of many words share the rest.
        order = sorted(range(len(names)), key=lambda at: widths[at] - least[at])
        for waiting, at in zip(range(len(order), 0, -1), order, strict=True):
            given = min(widths[at] - least[at], spare // waiting)
            widths[at] = least[at] + given
            spare -= given
    table = PrettyTable(names, align="l", break_on_hyphens=False)
    table.max_width = dict(zip(names, widths, strict=True))
    for row in cells:
        texts = ["\n".join(lines) for lines in row]
        # Numbers stand right, below names that stand left.
        columns = zip(texts, widths, right, strict=True)
        table.add_row([text.rjust(width) if numeric else text for text, width, numeric in columns])
    stdout.write(f"{table}\n")


def _longest_word(names: Sequence[str], cells: Sequence[Sequence[list[str]]], at: int) -> int:
    words = (len(word) for row in cells for line in row[at] for word in line.split())
    return max(len(names[at]), max(words, default=0))


def _lines(cell: Any) -> list[str]:
    """Return the lines of a cell as people read it; a missing value is an empty line."""
    if isinstance(cell, FormattableColumn):
        return [harmless(line) for line in cell.human_readable().split("\n")]
    return [""] if cell is None else [harmless(str(cell))]


def harmless(line: str) -> str:
    """Return a line as a terminal shows it, with the colours of `painted` and no others."""
    if line.isprintable():
        return line
    return "".join(part if part in _painted else printable(part) for part in _COLOURED.split(line))


class Text(ValueFormatter):
    """A format of lines of text; a line that is longer than the terminal is wide goes on below, indented."""

    def emit_list(self, column_names: Sequence[str], data: Rows, stdout: TextIO, parsed_args: Any) -> None:
        room = _room(parsed_args, stdout)
        for line in (harmless(line) for (line,) in data):
            written = [line]
            # Coloured lines are drawings, which cannot be read in pieces.
            if room is not None and len(line) > room and _ESCAPE not in line:
                indent = len(line) - len(line.lstrip(" 0123456789")) + 2
                written = textwrap.wrap(
                    line, room, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
                )
            stdout.write("\n".join(written) + "\n")


def _room(parsed: argparse.Namespace, stdout: TextIO) -> int | None:
    """Return how many characters fit a line; None in files and pipes, unless an option asks for a width."""
    if parsed.max_width > 0:
        return int(parsed.max_width)
    return get_terminal_size().columns if stdout.isatty() or parsed.fit_width else None


class TextCell(FormattableColumn[Any]):
    """A cell with lines for people, and the value behind them for programs."""

    def __init__(self, value: object, lines: Iterable[str]) -> None:
        super().__init__(value)
        self._text = "\n".join(map(harmless, lines))

    def human_readable(self) -> str:
        return self._text


def cpu_list(cpus: str | None) -> str:
    """Return a list of CPUs as people read it; None is a list that is not known."""
    return "unknown" if cpus is None else cpus or "none"


def lines(texts: Sequence[str]) -> TextCell:
    """Return a cell of one text a line."""
    return TextCell(texts, texts)


def amounts(by_class: Mapping[str, int]) -> TextCell:
    """Return a cell of one amount a line, by resource class."""
    return TextCell(by_class, (f"{name}={amount}" for name, amount in sorted(by_class.items())))


def quantities(by_resource: Mapping[str, str]) -> TextCell:
    """Return a cell of one quantity of Kubernetes a line, by resource; bytes are shown in GiB."""
    return TextCell(by_resource, (f"{name}={_quantity(name, text)}" for name, text in by_resource.items()))


def _quantity(resource: str, text: str) -> str:
    is_bytes = resource in ("memory", "ephemeral-storage") and text.isdigit()
    return f"{int(text) / 2**30:.1f} GiB" if is_bytes else text


def documents(texts: Mapping[str, str]) -> TextCell:
    """Return a cell of names with texts, each on a line of its own; JSON is indented below its name."""
    shown = []
    for name, text in texts.items():
        is_json = text.startswith(("{", "["))
        whole = json.dumps(json.loads(text), indent=2).split("\n") if is_json else [text]
        shown += [f"{name}={whole[0]}", *whole[1:]]
    return TextCell(texts, shown)


# Times, in UTC.


def age(since: str, now: datetime.datetime) -> TextCell:
    """Return a cell of how long ago a time was, in the largest unit that fits, such as 5m or 3d."""
    seconds = max(0, int((now - datetime.datetime.fromisoformat(since)).total_seconds()))
    name, unit = next((name, unit) for name, unit in _UNITS if seconds >= unit or unit == 1)
    return TextCell(since, (f"{seconds // unit}{name}",))


def moment(time: str, now: datetime.datetime) -> TextCell:
    """Return a cell of a time to the second, without the date if it is of today."""
    at = datetime.datetime.fromisoformat(time)
    return TextCell(time, (f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}",))


# Colour, for people at a terminal that has it.


GREEN, YELLOW, RED = "32", "33", "31"
_NO_COLOUR = "NO_COLOR"


def painted(text: str, colour: str, stream: TextIO) -> str:
    """Return the text in this colour where a terminal shows it, unless NO_COLOR is set (no-color.org)."""
    plain = os.environ.get(_NO_COLOUR) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    if plain or not text:
        return text
    found = f"\033[{colour}m{printable(text)}\033[0m"
    _painted.add(found)
    return found
