"""Query strings: their parameters, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from placement.engine.domain import errors
from placement.engine.domain.identifiers import near
from placement.http.operations import PREFIX, Parameter, sentence
from placement.http.schemas import (
    LONGEST_NAME,
    Document,
    refuse_strange,
    shown,
)

POLICIES = ("none", "isolate")
_LARGEST_ID = 2**31 - 1
LARGEST_LONG_ID = 2**63 - 1
_PAGE = 1000
_LARGEST_PAGE = 10_000
LONGEST_KEPT = 8192
"""The longest query string, in characters, that is cached once parsed; bodies may hold any length."""
# Parameters with a rule for their values; the others may be any text.
_SPECIAL: dict[str, Document] = {
    "uuid": {"type": "string", "format": "uuid"},
    "in_tree": {"type": "string", "format": "uuid"},
    "limit": {"type": ["integer", "string"], "pattern": "^[1-9][0-9]*$", "minimum": 1, "minLength": 1},
    "group_policy": {"type": "string", "enum": list(POLICIES)},
}
LIMIT = Parameter(
    "limit",
    f"How many entries a page has at most; {_PAGE} by default.",
    {"type": "integer", "minimum": 1, "maximum": _LARGEST_PAGE},
)
ROW_ID: Document = {"type": "integer", "minimum": 1, "maximum": _LARGEST_ID}
Parameters = list[tuple[str, str]]


def read(query_string: str) -> Parameters:
    """Return all parameters of a query string in order. Raises BadRequest for NUL and other than UTF-8."""
    is_kept = len(query_string) <= LONGEST_KEPT
    return list((_read if is_kept else _read.__wrapped__)(query_string))


# Policy rules, the route and the next request of a client read equal query strings.
@lru_cache(maxsize=256)
def _read(query_string: str) -> tuple[tuple[str, str], ...]:
    pairs = (piece.partition("=") for piece in query_string.split("&") if piece)
    return tuple((_decode(key), _decode(value)) for key, _, value in pairs)


def _decode(text: str) -> str:
    try:
        decoded = unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise errors.BadRequest(f"{PREFIX}the query string is not UTF-8.") from None
    if "\0" in decoded:
        # No database can hold such a text; a query for it would only fail.
        raise errors.BadRequest(f"{PREFIX}the query string contains a NUL character.")
    return decoded


def refuse_unknown(found: Parameters, known: Collection[str], *, own: bool = True) -> None:
    """Raise BadRequest naming parameters that are not understood, in our words or the incumbent's."""
    strange = sorted({key for key, _ in found if key not in known})
    if strange and own:
        raise unknown(strange, known)
    try:
        refuse_strange(strange)
    except errors.SchemaViolation as violation:
        raise violated(violation, schema_of(known), found, own=own) from None


def unknown(names: Sequence[str], known: Collection[str]) -> errors.BadValues:
    """Return the error for parameters that are not understood, with the known ones."""
    there_are = f"; parameters are {', '.join(sorted(known))}" if known else "; it takes none"

    def finding(name: str) -> errors.Finding:
        is_name = name.isidentifier() and len(name) <= LONGEST_NAME
        place = errors.parameter(name if is_name else shown(name))
        fault = errors.Finding("is not a parameter of this request", place)
        if is_name and len(names) <= errors.MOST_FINDINGS and near(name, known):
            return replace(fault, value=name, known=lambda: known)
        return replace(fault, what=f"{fault.what}{there_are}")

    return errors.BadValues(map(finding, names))


def schema_of(known: Iterable[str], required: Sequence[str] = ()) -> Document:
    """Return the JSON Schema of a query string with these parameters."""
    properties = {key: _SPECIAL.get(key, {"type": "string"}) for key in known}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def violated(
    violation: errors.SchemaViolation, schema: Document, found: Parameters, *, own: bool = True
) -> errors.BadRequest:
    """Return the error for a query string that breaks its schema; the last of several values is shown."""
    if own:
        return errors.BadValues(
            replace(each, place=errors.parameter(each.place.text)) for each in violation.all_findings()
        )
    return errors.BadRequest(f"{PREFIX}{sentence(violation, schema, dict(found))}")


def refuse_value(
    found: Parameters, key: str, value: str, reason: str, keyword: str, *, own: bool = True
) -> errors.BadRequest:
    """Return the error for a parameter with a value that breaks the rule `keyword` of its schema."""
    place = ("properties", key)
    violation = errors.SchemaViolation(reason, keyword, place, (key,))
    return violated(violation, schema_of([key]), [*found, (key, value)], own=own)


def last(found: Parameters, key: str) -> str | None:
    """Return the last value of a parameter, None if it is not given."""
    values = every(found, key)
    return values[-1] if values else None


def single(found: Parameters, key: str) -> str | None:
    """Return the value of a parameter that may come only once. Raises BadRequest naming it."""
    values = every(found, key)
    if len(values) > 1:
        raise errors.BadRequest(
            "may be given only once", place=errors.parameter(key), code="placement.query.duplicate_key"
        )
    return values[0] if values else None


def parse_positive(value: str) -> int | None:
    """Return a positive decimal number, or None if the text is not one; leading zeros are refused."""
    if not re.fullmatch("[1-9][0-9]*", value):
        return None
    return int(value) if len(value) <= 18 else 10**18


def page_size(found: Parameters) -> int:
    """Return how many entries a page of a list may have, by `limit`. Raises BadRequest."""
    return _number(found, "limit", _PAGE, _LARGEST_PAGE, f"1 to {_LARGEST_PAGE}")


def page_start(found: Parameters, key: str, largest: int = _LARGEST_ID) -> int:
    """Return the id after which a page of a list begins, by the parameter `key`. Raises BadRequest."""
    return _number(found, key, 0, largest, "the `next` of an earlier page")


def _number(found: Parameters, key: str, default: int, largest: int, meant: str) -> int:
    value = single(found, key)
    number = default if value is None else parse_positive(value)
    if number is None or number > largest:
        raise errors.BadRequest(f"must be {meant}, not {value!r}", place=errors.parameter(key))
    return number


def every(found: Parameters, key: str) -> list[str]:
    """Return all values of a parameter."""
    return [value for name, value in found if name == key]
