"""JSON as it stands in columns: written so that it can be read again, and read whatever wrote it."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.units import LARGEST_AMOUNT

_OPTIONS = orjson.OPT_NON_STR_KEYS


class UnreadableDocument(dict[str, Any]):
    """An empty document in place of one that is not JSON, as a row that was changed by hand may have."""


def written(document: Any) -> str:
    """Return a document as the text of a column, which `read` takes again.

    Raises BadRequest for values that JSON of 64 bits and Unicode cannot hold, before anything is written.
    """
    try:
        return orjson.dumps(document, option=_OPTIONS).decode()
    except TypeError as error:
        raise BadRequest(f"It cannot be stored: {error}") from None


def read(text: str) -> Any:
    """Return the document of a column; never fails, as one row must not spoil the answer about all others.

    Releases before wrote numbers that are infinite when read as 64 bits, and halves of characters. Numbers
    are brought within 64 bits and such halves replaced.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        try:
            return _mended(json.loads(text))
        except (ValueError, RecursionError):
            return UnreadableDocument()


def _mended(value: Any) -> Any:
    if isinstance(value, dict):
        return {_mended(key): _mended(member) for key, member in value.items()}
    if isinstance(value, list):
        return list(map(_mended, value))
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else _mended(LARGEST_AMOUNT if value > 0 else -LARGEST_AMOUNT)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-LARGEST_AMOUNT, min(LARGEST_AMOUNT, value))
    return value
