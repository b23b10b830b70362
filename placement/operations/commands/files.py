"""Files that commands read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from placement.domain.errors import PlacementError

STANDARD_INPUT = "-"


def read_bytes(name: str) -> bytes:
    """What is in the file, or comes from standard input. Raises PlacementError naming the file."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise PlacementError(f"{name}: {reason or error}") from None


def read_json(name: str) -> object:
    """The JSON in the file. Raises PlacementError naming the file."""
    try:
        document: object = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{name}: is no JSON: {error}") from None
    return document
