"""Cells of tables: lines for people, and the values behind them for programs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cliff.columns import FormattableColumn

from placement.client.terminal import harmless
from placement.common.texts import shown_span
from placement.common.titles import short_id


class TextCell(FormattableColumn[Any]):
    """A cell with lines for people, and the value behind them for programs."""

    def __init__(self, value: object, lines: Iterable[str]) -> None:
        super().__init__(value)
        self._text = "\n".join(map(harmless, lines))

    def human_readable(self) -> str:
        return self._text


def lines(texts: Sequence[str]) -> TextCell:
    """Return a cell of one text a line."""
    return TextCell(texts, texts)


def owner(text: str | None, *, whole: bool) -> TextCell:
    """Return a cell of a project or user; of an id people see the first digits, or the `whole`."""
    return TextCell(text, () if text is None else (text if whole else short_id(text),))


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


def cpu_list(cpus: str | None) -> str:
    """Return a list of CPUs as people read it; None is a list that is not known."""
    return "unknown" if cpus is None else cpus or "none"


def age(since: str, now: datetime.datetime) -> TextCell:
    """Return a cell of how long ago a time was, in the largest unit that fits, such as 5m or 3d."""
    seconds = max(0, int((now - datetime.datetime.fromisoformat(since)).total_seconds()))
    return TextCell(since, (shown_span(seconds),))


def moment(time: str, now: datetime.datetime) -> TextCell:
    """Return a cell of a time in UTC to the second, without the date if it is of today."""
    at = datetime.datetime.fromisoformat(time)
    return TextCell(time, (f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}",))
