"""Colours for people at a terminal that has them, and texts that cannot do anything to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TextIO

from placement.common.texts import printable

GREEN, YELLOW, RED = "32", "33", "31"
_NO_COLOUR = "NO_COLOR"
# What `paint` returned lately; a name that has the same characters shows what we show ourselves.
_COLOURED = re.compile("(\033\\[3[1-3]m[^\033]*\033\\[0m)")
_painted: set[str] = set()


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return the text in this colour where a terminal shows it, unless NO_COLOR is set (no-color.org)."""
    plain = os.environ.get(_NO_COLOUR) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    if plain or not text:
        return text
    painted = f"\033[{colour}m{printable(text)}\033[0m"
    _painted.add(painted)
    return painted


def harmless(line: str) -> str:
    """Return a line as a terminal shows it, with the colours of `paint` and no others."""
    if line.isprintable():
        return line
    return "".join(part if part in _painted else printable(part) for part in _COLOURED.split(line))


def can_write(stream: TextIO, characters: Iterable[str]) -> bool:
    """Return whether the encoding of a stream has all these characters."""
    try:
        "".join(characters).encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
