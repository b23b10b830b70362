"""Reading query strings."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote_to_bytes

from flask import request

from placement.domain.errors import BadRequest

PREFIX = "Invalid query string parameters: "
Parameters = list[tuple[str, str]]


def parameters() -> Parameters:
    """All parameters of the request in their order. Raises BadRequest for bytes that are no UTF-8."""
    return read(request.query_string.decode("latin-1"))


def read(query_string: str) -> Parameters:
    """All parameters of a form-encoded query string in their order. Raises BadRequest likewise."""
    found = []
    for piece in query_string.split("&"):
        if piece:
            key, _, value = piece.partition("=")
            found.append((_decode(key), _decode(value)))
    return found


def _decode(text: str) -> str:
    try:
        decoded = unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{PREFIX}the query string is not UTF-8.") from None
    if "\0" in decoded:
        # No database holds such a text; asking it would only fail.
        raise BadRequest(f"{PREFIX}the query string contains a NUL character.")
    return decoded


def refuse_unknown(found: Parameters, known: Collection[str]) -> None:
    """Raises BadRequest naming parameters that are not understood."""
    strange = sorted({key for key, _ in found if key not in known})
    if strange:
        listed = ", ".join(repr(key) for key in strange)
        verb = "was" if len(strange) == 1 else "were"
        raise BadRequest(
            f"{PREFIX}Additional properties are not allowed ({listed} {verb} unexpected) "
            "Failed validating 'additionalProperties' in schema"
        )


def last(found: Parameters, key: str) -> str | None:
    """The last value of a parameter."""
    values = every(found, key)
    return values[-1] if values else None


def single(found: Parameters, key: str) -> str | None:
    """The value of a parameter that may come only once. Raises BadRequest naming it."""
    values = every(found, key)
    if len(values) > 1:
        raise BadRequest(f"{key}: may be given only once", code="placement.query.duplicate_key")
    return values[0] if values else None


def every(found: Parameters, key: str) -> list[str]:
    """All values of a parameter."""
    return [value for name, value in found if name == key]
