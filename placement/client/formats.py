"""The formats of rows and fields: tables that fit the terminal, CSV and YAML."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.table import TableFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter
from prettytable import PrettyTable

if TYPE_CHECKING:
    from placement.client.client import Client


_ESCAPE = "\033"
_BETWEEN = 3
"""What a column takes beside its text: a blank on both sides and a line."""


class Csv(CSVLister):
    """A CSV format with cells of plain text: a spreadsheet has no use for Python's idea of a list."""

    def emit_list(
        self, column_names: Sequence[str], data: Iterable[Sequence[Any]], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write a header and the rows."""
        # One row at a time: a list may be long.
        rows = ([_in_one_line(cell) for cell in row] for row in data)
        super().emit_list(column_names, rows, stdout, parsed_args)


class SingleCsv(Csv):
    """A CSV format of one thing as a header and a row."""

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write both."""
        self.emit_list(column_names, [data], stdout, parsed_args)


class Yaml(YAMLFormatter):
    """A YAML format that repeats what occurs twice, as anchors help no reader."""

    def emit_list(
        self, column_names: Sequence[str], data: Iterable[Sequence[Any]], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write a list of mappings."""
        super().emit_list(column_names, map(_apart, data), stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write one mapping, in the order of the fields."""
        super().emit_one(column_names, _apart(data), stdout, parsed_args)


class WrappedTable(TableFormatter):
    """A table as wide as the terminal: text is broken between words only, so names and UUIDs stay whole.

    Where that is too wide, columns are left out: `parsed_args.left_out_first`, then columns from the right,
    unless `--wide` or `-c` asks for them.
    """

    def emit_list(
        self, column_names: Sequence[str], data: Iterable[Sequence[Any]], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write a header and the rows; standard error tells what was left out."""
        names, cells = list(column_names), [[_lines(cell) for cell in row] for row in data]
        room = None if parsed_args.wide else _room(parsed_args, stdout)
        if not (cells or parsed_args.print_empty):
            return
        shown = list(range(len(names)))
        if room is not None and not parsed_args.columns:
            shown = _fitting(names, cells, room, parsed_args.left_out_first)
        kept = [[row[at] for at in shown] for row in cells]
        right = [bool(cells) and all(_is_number(row[at]) for row in cells) for at in shown]
        _write([names[at] for at in shown], kept, right, room, stdout)
        missing = [name for at, name in enumerate(names) if at not in shown]
        if missing:
            stdout.flush()
            print(f"Left out: {', '.join(missing)}; --wide shows all, -c COLUMN chooses.", file=sys.stderr)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write a row for each field."""
        rows = [[[name], _lines(value)] for name, value in zip(column_names, data, strict=True)]
        _write(["Field", "Value"], rows, [False, False], _room(parsed_args, stdout), stdout)


class Text(ValueFormatter):
    """A format of lines of text; a line that is longer than the terminal is wide goes on below, indented."""

    def emit_list(
        self, column_names: Sequence[str], data: Iterable[Sequence[Any]], stdout: TextIO, parsed_args: Any
    ) -> None:
        """Write the only cell of each row."""
        room = _room(parsed_args, stdout)
        for (line,) in data:
            # Coloured lines are drawings, which cannot be read in pieces.
            if room is None or len(line) <= room or _ESCAPE in line:
                written = [line]
            else:
                written = _continued(line, room)
            stdout.write("\n".join(written) + "\n")


def _continued(line: str, room: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip(" 0123456789"))]
    return textwrap.wrap(
        line,
        room,
        subsequent_indent=" " * (len(indent) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _room(parsed: argparse.Namespace, stdout: TextIO) -> int | None:
    """Return how many characters fit a line; None in files and pipes, unless an option asks for a width."""
    if parsed.max_width > 0:
        return int(parsed.max_width)
    return get_terminal_size().columns if stdout.isatty() or parsed.fit_width else None


def _fitting(
    names: Sequence[str], cells: Sequence[Sequence[list[str]]], room: int, first: Sequence[str]
) -> list[int]:
    """Return the columns that stay; the first one always does."""
    order = [*(names.index(name) for name in first if name in names)]
    order += [at for at in range(len(names) - 1, 0, -1) if at not in order]
    shown = list(range(len(names)))
    for at in order:
        if sum(_least(names, cells, kept) + _BETWEEN for kept in shown) + 1 <= room:
            break
        shown.remove(at)
    return shown


def _least(names: Sequence[str], cells: Sequence[Sequence[list[str]]], at: int) -> int:
    """Return the width of the longest word of a column."""
    words = (len(word) for row in cells for line in row[at] for word in line.split())
    return max(len(names[at]), max(words, default=0))


def _write(
    names: Sequence[str],
    cells: Sequence[Sequence[list[str]]],
    right: Sequence[bool],
    room: int | None,
    stdout: TextIO,
) -> None:
    widths = _widths(names, cells, room)
    table = PrettyTable(names, align="l", break_on_hyphens=False)
    table.max_width = dict(zip(names, widths, strict=True))
    for row in cells:
        texts = ["\n".join(lines) for lines in row]
        # Numbers stand right, below names that stand left.
        columns = zip(texts, widths, right, strict=True)
        table.add_row([text.rjust(width) if numeric else text for text, width, numeric in columns])
    stdout.write(f"{table}\n")


def _widths(names: Sequence[str], cells: Sequence[Sequence[list[str]]], room: int | None) -> list[int]:
    """Return the widths of the columns; columns of many words share what the others leave."""
    widths = [
        max(len(name), max((len(line) for row in cells for line in row[at]), default=0))
        for at, name in enumerate(names)
    ]
    if room is None:
        return widths
    least = [_least(names, cells, at) for at in range(len(names))]
    spare = max(0, room - 1 - sum(width + _BETWEEN for width in least))
    # Columns that need little get it, the rest is for columns that need more.
    order = sorted(range(len(names)), key=lambda at: widths[at] - least[at])
    for waiting, at in zip(range(len(order), 0, -1), order, strict=True):
        given = min(widths[at] - least[at], spare // waiting)
        widths[at] = least[at] + given
        spare -= given
    return widths


def _lines(cell: Any) -> list[str]:
    """Return the lines of a cell as people read it; a missing value is an empty line."""
    text = cell.human_readable() if isinstance(cell, FormattableColumn) else cell
    return [""] if text is None else str(text).splitlines() or [""]


def _is_number(lines: Sequence[str]) -> bool:
    return len(lines) == 1 and (not lines[0] or lines[0].removeprefix("-").isdecimal())


def _in_one_line(cell: object) -> object:
    return "; ".join(str(cell).splitlines()) if isinstance(cell, FormattableColumn) else cell


def _apart(row: Sequence[Any]) -> list[Any]:
    """Return the cells of a row as they are in JSON, none of which shares a part with another."""
    plain = [cell.machine_readable() if isinstance(cell, FormattableColumn) else cell for cell in row]
    apart: list[Any] = json.loads(json.dumps(plain))
    return apart


# Cells with a form for people and another one for programs.


class ResourceAmounts(FormattableColumn[Mapping[str, int]]):
    """A cell of amounts by resource class."""

    def human_readable(self) -> str:
        """Return one amount a line."""
        return "\n".join(f"{name}={amount}" for name, amount in sorted(self._value.items()))


class Lines(FormattableColumn[Sequence[str]]):
    """A cell of texts."""

    def human_readable(self) -> str:
        """Return one text a line."""
        return "\n".join(self._value)


class Pairs(FormattableColumn[Mapping[str, str]]):
    """A cell of texts by name."""

    def human_readable(self) -> str:
        """Return one pair a line."""
        return "\n".join(f"{name}={text}" for name, text in self._value.items())


class Containers(FormattableColumn[Sequence[Mapping[str, Any]]]):
    """A cell of the containers of a pod."""

    def human_readable(self) -> str:
        """Return one container a line, with the CPUs on which it runs."""
        return "\n".join(
            f"{container['name']}: CPUs {container.get('cpuset', '?') or 'none'}" for container in self._value
        )


class Misses(FormattableColumn[Sequence[Mapping[str, Any]]]):
    """A cell of the near misses of a condition that none meets."""

    def human_readable(self) -> str:
        """Return what each lacks, a sentence a line."""
        return "\n".join(sentence for miss in self._value for sentence in miss["sentences"])


class Groups(FormattableColumn[Mapping[str, Any]]):
    """A cell of request groups by suffix."""

    def human_readable(self) -> str:
        """Return one group a line: its suffix, its amounts, its traits."""
        return "\n".join(f"{suffix or '(base)'}: {_asked(group)}" for suffix, group in self._value.items())


class Cells(FormattableColumn["Sequence[Mapping[str, Any]] | None"]):
    """A cell of the NUMA cells of a guest."""

    def human_readable(self) -> str:
        """Return one cell a line."""
        return "\n".join(
            f"{cell['id']}: shared {_cpus(cell['cpuset'])}, dedicated {_cpus(cell['pcpuset'])}, "
            f"{cell['memory']} MiB"
            for cell in self._value or ()
        )


def _asked(group: Mapping[str, Any]) -> str:
    amounts = [f"{name}={amount}" for name, amount in sorted(group.get("resources", {}).items())]
    forbidden = [f"!{name}" for name in group.get("forbidden", ())]
    return " ".join([*amounts, *group.get("required", ()), *forbidden])


def _cpus(cpus: Sequence[int]) -> str:
    from placement.flavors.nova.cpuset import format_cpuset

    return format_cpuset(cpus) or "none"


# Colour, for people at a terminal that has it.


GREEN, YELLOW, RED = "32", "33", "31"
_NO_COLOUR = "NO_COLOR"


def painted(text: str, colour: str, stream: TextIO) -> str:
    """Return the text in this colour where a terminal shows it, unless NO_COLOR is set (no-color.org)."""
    plain = os.environ.get(_NO_COLOUR) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain or not text else f"\033[{colour}m{text}\033[0m"


# Long lists of the service, read a page at a time.


_PAGE = 1000


class PagedList:
    """A list at a path; `member` holds the entries of a page, `cursor` asks for the page after `next`."""

    def __init__(self, client: Client, path: str, member: str, cursor: str) -> None:
        self._client = client
        self._path = path
        self._member = member
        self._cursor = cursor

    def entries(self, given: Mapping[str, str | None], limit: int | None) -> Iterator[dict[str, Any]]:
        """Return the entries that meet all that is given, at most `limit`.

        The first page is read at once, so that a refusal comes before anything is written.
        """
        query = [(key, value) for key, value in given.items() if value is not None]
        query.append(("limit", str(min(limit or _PAGE, _PAGE))))
        return islice(self._from(query, self._client.get(self._path, query)), limit)

    def _from(self, query: Sequence[tuple[str, str]], page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from page[self._member]
        while page["next"] is not None:
            page = self._client.get(self._path, [*query, (self._cursor, str(page["next"]))])
            yield from page[self._member]
