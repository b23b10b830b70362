"""Names as MySQL and MariaDB compare them, where other databases and this service see several."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

# Blocks of 256 characters in which utf8_general_ci knows cases and accents: Latin, Greek, Cyrillic, Armenian
# and the letter-like signs. Elsewhere each character is equal to itself alone.
_BLOCKS = frozenset({0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x1E, 0x1F, 0x21, 0x24, 0xFF})
# Letters that the rule of the others would not explain.
_PARTICULAR = {"ß": "S", "й": "Й", "Й": "Й"}
_LAST_OF_UTF8 = "\uffff"
_REPLACEMENT = "\ufffd"


def folded(name: str) -> str:
    """Return what two names have in common if MySQL calls them one, and no two others.

    Rule: utf8mb3_general_ci, which deployments of OpenStack get with `charset=utf8`. Case and accents do not
    count, nor do blanks at the end. Each character stands for itself: ß is s, and æ is not ae. A combining
    accent counts, as it is a character of its own. utf8mb4_general_ci calls all characters above U+FFFF one.
    """
    padded = name.rstrip(" ")
    return padded.upper() if padded.isascii() else "".join(map(_weight, padded))


@lru_cache(maxsize=4096)
def _weight(character: str) -> str:
    if character > _LAST_OF_UTF8:
        return _REPLACEMENT
    if ord(character) >> 8 not in _BLOCKS:
        return character
    if character in _PARTICULAR:
        return _PARTICULAR[character]
    decomposed = unicodedata.normalize("NFD", character)
    has_accent = len(decomposed) > 1 and decomposed[0].isalpha()
    base = decomposed[0] if has_accent else character
    upper = base.upper()
    return upper if len(upper) == 1 else base


def called_one(names: Iterable[str]) -> list[list[str]]:
    """Return the groups of two or more different names that MySQL calls one, all in order."""
    groups: dict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[folded(name)].add(name)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)
