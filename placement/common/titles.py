"""What consumers, projects and moves are called where people read: in few characters that tell them apart."""

from __future__ import annotations

import re

_SERVER = "INSTANCE"
# The ids that OpenStack gives projects and users, and UUIDs.
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DIGITS = 8
GUESSED_MOVES = "guessed: its request is not known, so amounts, traits and aggregates are kept"
"""What commands and pages say of the moves of consumers that were not claimed by a query."""


def short_id(text: str) -> str:
    """Return the first digits of an id; a name stays whole."""
    return text[:_DIGITS] if _ID.fullmatch(text) else text


def consumer_title(consumer_type: str | None, uuid: str) -> str:
    """Return the title of a consumer without a name: what it is, and the first digits of its UUID."""
    kind = "server" if consumer_type == _SERVER else (consumer_type or "consumer").lower()
    return f"{'consumer' if kind == 'unknown' else kind} {short_id(uuid)}"
