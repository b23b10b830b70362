"""Texts of callers where people read them: in terminals, spreadsheets, logs, and as names.

Names come from strangers to a terminal. An escape sequence in one clears the screen or sets its title, a line
break forges a line, U+202E turns what follows around, and a spreadsheet calculates what begins with `=`.
"""

from __future__ import annotations

import unicodedata
from typing import Any

_DISTURBING = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Line and paragraph separators, and the characters that change the direction of text (UAX #9)."""

# What spreadsheets take for formulas begins with these, also in full width; some drop blanks in front.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_BLANKS = ("\t", "\r", "\n")


def printable(text: str) -> str:
    r"""Return a text as one line that only shows characters; all others are written out, as `\x1b`.

    Written out are controls, line breaks, marks of direction, characters without width, and blanks other than
    the space. Machine formats (JSON, YAML) take texts as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _written_out(each) for each in text)


_SPANS = (("d", 86400), ("h", 3600), ("m", 60))


def shown_span(seconds: int) -> str:
    """Return a length of time in the largest unit that fits, such as 45s, 5m or 3d."""
    name, unit = next(((name, unit) for name, unit in _SPANS if seconds >= unit), ("s", 1))
    return f"{seconds // unit}{name}"


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def spreadsheet_cell(value: Any) -> Any:
    """Return a value as a cell of a CSV file: a text on one line that no spreadsheet takes for a formula.

    Source: OWASP, "CSV Injection".
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    is_formula = value.startswith(_BLANKS) or value.lstrip().startswith(_FORMULA)
    return f"'{printable(value)}" if is_formula else printable(value)


def disturbing(text: str) -> str | None:
    """Return the first character that may be in no name, written out as `U+202E`; None if there is none.

    These are controls, separators of lines and marks of direction. Joiners without width stay, for some
    languages are not written without them.
    """
    if text.isprintable():
        return None
    found = (each for each in text if each in _DISTURBING or unicodedata.category(each) == "Cc")
    first = next(found, None)
    return None if first is None else f"U+{ord(first):04X}"
