"""Tables that fit the terminal, and the headings of their columns."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from shutil import get_terminal_size
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.table import TableFormatter
from prettytable import PrettyTable

from placement.client.terminal import harmless

AnyRows = Iterable[Sequence[Any]]
ShownTable = tuple[Sequence[str], Iterable[Any]]
"""What a command shows: the columns, and the rows, or the values of one row."""
_NUMBER = re.compile(r"(-?\d+(\.\d+)?(%| GiB| GB|/\d+)?)?")
_BETWEEN = 3
"""What a column takes beside its text: a blank on both sides and a line."""


class WrappedTable(TableFormatter):
    """A table as wide as the terminal: text is broken between words only, so names and UUIDs stay whole.

    Where that is too wide, columns are left out: `parsed_args.left_out_first`, then columns from the right,
    unless `--wide` or `-c` asks for them. The first column always stays.
    """

    def emit_list(self, column_names: Sequence[str], data: AnyRows, stdout: TextIO, parsed_args: Any) -> None:
        """Write a header and the rows; standard error tells what was left out."""
        columns: Sequence[_TableColumn] = _columns(column_names, data)
        width = None if parsed_args.wide else width_of(stdout, parsed_args)
        if not (columns[0].cells or parsed_args.print_empty):
            return
        columns = _without_rare(columns, parsed_args)
        shown = columns
        if width is not None and not parsed_args.columns:
            shown = _fitting(columns, width, parsed_args)
        _write(shown, width, stdout)
        if missing := [column.name for column in columns if column not in shown]:
            stdout.flush()
            print(
                f"Hidden columns: {', '.join(missing)}. Show all with --wide, or choose with -c COLUMN.",
                file=sys.stderr,
            )

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        names = [[harmless(heading(name))] for name in column_names]
        columns = [_TableColumn("Field", names), _TableColumn("Value", [_lines(value) for value in data])]
        _write(columns, width_of(stdout, parsed_args), stdout, are_numbers_right=False)


@dataclass(frozen=True, eq=False)
class _TableColumn:
    """A column: its heading, and the lines of each cell."""

    name: str
    cells: Sequence[Sequence[str]]

    @cached_property
    def width(self) -> int:
        """The width that no line of it has to be broken for."""
        return max(len(self.name), max((len(line) for cell in self.cells for line in cell), default=0))

    @cached_property
    def least_width(self) -> int:
        """The width of its longest word."""
        words = (len(word) for cell in self.cells for line in cell for word in line.split())
        return max(len(self.name), max(words, default=0))

    @cached_property
    def has_numbers(self) -> bool:
        """Whether it is of numbers, which stand right."""
        return bool(self.cells) and all(_NUMBER.fullmatch("\n".join(cell)) for cell in self.cells)


def _columns(names: Sequence[str], rows: AnyRows) -> list[_TableColumn]:
    cells = [[_lines(cell) for cell in row] for row in rows]
    return [_TableColumn(heading(name), [row[at] for row in cells]) for at, name in enumerate(names)]


def _without_rare(columns: Sequence[_TableColumn], parsed_args: Any) -> Sequence[_TableColumn]:
    """Return the columns without the ones that tables have on request only, unless columns are asked for."""
    if parsed_args.wide or parsed_args.columns:
        return columns
    rare = set(map(heading, parsed_args.only_wide))
    return [column for column in columns if column.name not in rare]


def _fitting(columns: Sequence[_TableColumn], width: int, parsed_args: Any) -> Sequence[_TableColumn]:
    """Return the columns that a line of this width has room for."""
    shown = list(columns)
    for column in _in_order_of_leaving(columns, parsed_args):
        if sum(each.least_width + _BETWEEN for each in shown) + 1 <= width:
            break
        shown.remove(column)
    return shown


def _in_order_of_leaving(columns: Sequence[_TableColumn], parsed_args: Any) -> Iterator[_TableColumn]:
    """Yield the columns that may be left out, least important ones first."""
    by_name = {column.name: column for column in columns}
    first = [by_name[name] for name in map(heading, parsed_args.left_out_first) if name in by_name]
    yield from first
    stay = set(map(heading, parsed_args.kept))
    yield from (each for each in reversed(columns[1:]) if each not in first and each.name not in stay)


def _write(
    columns: Sequence[_TableColumn], width: int | None, stdout: TextIO, *, are_numbers_right: bool = True
) -> None:
    """Write a table with lines that are broken to fit the width."""
    widths = [column.width for column in columns] if width is None else _shared(columns, width)
    table = PrettyTable([column.name for column in columns], align="l", break_on_hyphens=False)
    table.max_width = {column.name: each for column, each in zip(columns, widths, strict=True)}
    texts = [["\n".join(cell) for cell in column.cells] for column in columns]
    for at, (column, each) in enumerate(zip(columns, widths, strict=True)):
        if are_numbers_right and column.has_numbers:
            # Numbers stand right, below names that stand left.
            texts[at] = [text.rjust(each) for text in texts[at]]
    table.add_rows(list(map(list, zip(*texts, strict=True))))
    stdout.write(f"{table}\n")


def _shared(columns: Sequence[_TableColumn], width: int) -> list[int]:
    """Return the widths of columns in a line: what their longest words need, and a share of the rest.

    Columns that need little get it, columns of many words share what is left.
    """
    widths = [column.least_width for column in columns]
    wanted = [column.width - least for column, least in zip(columns, widths, strict=True)]
    spare = max(0, width - 1 - sum(least + _BETWEEN for least in widths))
    order = sorted(range(len(columns)), key=lambda at: wanted[at])
    for waiting, at in zip(range(len(order), 0, -1), order, strict=True):
        share = min(wanted[at], spare // waiting)
        widths[at] += share
        spare -= share
    return widths


def _lines(cell: Any) -> list[str]:
    """Return the lines of a cell as people read it; a missing value is an empty line."""
    if isinstance(cell, FormattableColumn):
        return [harmless(line) for line in cell.human_readable().split("\n")]
    return [""] if cell is None else [harmless(str(cell))]


def width_of(stdout: TextIO, parsed: argparse.Namespace) -> int | None:
    """Return how many characters fit a line; None in files and pipes, unless an option asks for a width."""
    if parsed.max_width > 0:
        return int(parsed.max_width)
    return get_terminal_size().columns if stdout.isatty() or parsed.fit_width else None


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
