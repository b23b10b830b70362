"""Integers and booleans as extra specs and image properties spell them."""

from __future__ import annotations

import re

# More digits than any amount has; keeps hostile texts away from the arithmetic.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
_FALSE = frozenset(("0", "f", "false", "off", "n", "no"))


def integer(text: str) -> int | None:
    """The decimal integer the text spells, blanks around it allowed, else None."""
    trimmed = text.strip()
    return int(trimmed) if _INTEGER.fullmatch(trimmed) else None


def is_true(text: str) -> bool:
    """Whether the text is a word for true in any letter case; everything else is false.

    Source: nova-flavors.md, "Input".
    """
    return text.strip().lower() in _TRUE


def is_boolean(text: str) -> bool:
    """Whether the text is a word for true or for false in any letter case."""
    return text.strip().lower() in _TRUE | _FALSE
