"""Uuids as callers spell them, names that are almost known ones, and the names of this machine."""

from __future__ import annotations

import difflib
import ipaddress
import re
import uuid
from collections.abc import Iterable
from functools import lru_cache

_HEX = re.compile(r"[0-9a-fA-F]{32}")


def normalize_uuid(text: str) -> str | None:
    """Return the lower-case dashed form of anything that reduces to 32 hex digits, else None.

    `urn:`, `uuid:`, braces and dashes are removed first (placement-api.md, "Identifiers, names, numbers").
    """
    digits = text.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "")
    if not _HEX.fullmatch(digits):
        return None
    return str(uuid.UUID(hex=digits))


is_dashed_uuid = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch
"""Return a match if the text is a uuid with its dashes in the canonical places, in any letter case."""


_CLOSE, _MOST = 0.65, 3


def near(word: str, known: Iterable[str], most: int = _MOST) -> list[str]:
    """Return the known words that are written almost like this one, in any letter case, the closest first."""
    words = {each.lower(): each for each in known}
    return [words[each] for each in difflib.get_close_matches(word.lower(), words, most, _CLOSE)]


def near_hosts(word: str, known: Iterable[str]) -> list[str]:
    """Return the known hosts that are written almost like this one, the closest first.

    People leave the domain out: such a word is compared with the names without their domains.
    """
    if "." in word:
        return near(word, known)
    names: dict[str, list[str]] = {}
    for name in known:
        names.setdefault(name.partition(".")[0].lower(), []).append(name)
    return [name for label in near(word, names) for name in names[label]][:_MOST]


def meant(words: Iterable[str]) -> str:
    """Return the question whether one of these was meant, as the end of a message; nothing without any."""
    listed = " or ".join(words)
    return f"; did you mean {listed}?" if listed else ""


# The same few callers come again and again.
@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Return whether a name or address is loopback on every machine. Source: RFC 6761, section 6.3."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
