"""Consumers by the first digits of their UUIDs, for commands that read."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

from placement.client.arguments import UsageError
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid

if TYPE_CHECKING:
    from placement.client.client import Client

_LEAST_DIGITS, _ALL_DIGITS = 8, 32
_MOST_SHOWN = 5


def find_consumer(client: Client, text: str) -> str:
    """Return the UUID of the consumer that is called by it, or by at least eight of its first digits.

    Only consumers that hold something are found by some digits. Raises UsageError for other texts,
    PlacementError unless exactly one begins so.
    """
    normal = normalize_uuid(text)
    if normal is not None:
        return normal
    digits = text.replace("-", "").lower()
    if not re.fullmatch(f"[0-9a-f]{{{_LEAST_DIGITS},{_ALL_DIGITS}}}", digits):
        raise UsageError(f"{text}: is neither a UUID nor the first {_LEAST_DIGITS} digits of one, or more")
    # Consumers are listed in the order of their UUIDs, so these follow the last one before them.
    before = int(digits.ljust(_ALL_DIGITS, "0"), 16) - 1
    after = [("after", str(uuid.UUID(int=before)))] if before >= 0 else []
    listed = client.get("/ext/v1/allocations", [("limit", str(_MOST_SHOWN + 1)), *after])["consumers"]
    found = [each for each in listed if each["consumer_uuid"].replace("-", "").startswith(digits)]
    if not found:
        raise PlacementError(f"no consumer that holds something begins with {text}")
    if len(found) > 1:
        shown = ", ".join(
            f"{each['consumer_uuid']}{_in_brackets(each.get('consumer_name'))}"
            for each in found[:_MOST_SHOWN]
        )
        more = " and more" if len(found) > _MOST_SHOWN else ""
        raise PlacementError(f"several consumers begin with {text}: {shown}{more}")
    only: str = found[0]["consumer_uuid"]
    return only


def _in_brackets(name: str | None) -> str:
    return f" ({name})" if name else ""
