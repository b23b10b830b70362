"""The grammar of query values: resources, required, member_of, in_tree, suffixes, same_subtree.

One `Grammar` value says which forms are understood; the API chooses it by microversion.
Source: placement-api.md, "Query grammar", "Value parsing".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from placement.domain.errors import BadRequest
from placement.domain.identifiers import normalize_uuid

_POSITIVE = re.compile(r"[0-9]+")
_RESOURCES_FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: "
)
_INTEGER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 1000
_ANY_OF = "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'"
_PREFIX = "Invalid query string parameters: "


@dataclass(frozen=True, slots=True)
class Grammar:
    """Which forms of values are understood."""

    forbidden_traits: bool = True
    any_of_traits: bool = True
    repeated_required: bool = True
    repeated_member_of: bool = True
    forbidden_aggregates: bool = True


@dataclass(frozen=True, slots=True)
class TraitExpression:
    """Parsed `required` values: any-of sets that must all be met, and traits that must be absent."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """Parsed `member_of` values: any-of sets that must all be met, and aggregates that must be absent."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def parse_resources(value: str) -> dict[str, int]:
    """`VCPU:2,MEMORY_MB:1024` as a map of class to amount; the last of a repeated class wins.

    Raises BadRequest naming the offending piece.
    """
    if not value.strip():
        raise BadRequest(f"{_RESOURCES_FORM}empty string.")
    resources = {}
    for piece in value.split(","):
        name, colon, amount_text = piece.partition(":")
        if not colon or ":" in amount_text:
            raise BadRequest(f"{_RESOURCES_FORM}{piece}.")
        resources[name] = _parse_amount(name, amount_text)
    return resources


def _parse_amount(name: str, text: str) -> int:
    # Clients fold long query strings, which leaves blanks around amounts.
    trimmed = text.strip()
    if not (trimmed.isascii() and _INTEGER.fullmatch(trimmed)):
        raise BadRequest(f"Requested resource {name} expected positive integer amount. Got: {text}.")
    # No amount is above 64 bits; not converting longer digits keeps hostile input cheap.
    amount = int(trimmed) if len(trimmed) <= _MOST_DIGITS else int(trimmed[:20])
    if amount < 1:
        raise BadRequest(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
    return amount


def parse_required(values: list[str], grammar: Grammar) -> TraitExpression:
    """All `required` values of one group; only the last counts where repeating is not understood.

    Raises BadRequest.
    """
    if not grammar.repeated_required:
        values = values[-1:]
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        if value.startswith("in:"):
            required.append(_parse_any_of(value, grammar))
        else:
            plain, excluded = _parse_traits(value, grammar)
            required.extend(frozenset((name,)) for name in plain)
            forbidden |= excluded
    return TraitExpression(tuple(dict.fromkeys(required)), frozenset(forbidden))


def _parse_any_of(value: str, grammar: Grammar) -> frozenset[str]:
    if not grammar.any_of_traits:
        raise BadRequest(f"{_PREFIX}{_ANY_OF} only supported since microversion 1.39. Got: {value}")
    names = [name.strip() for name in value.removeprefix("in:").split(",")]
    if any(name.startswith("!") for name in names):
        raise BadRequest(f"{_PREFIX}{_ANY_OF} does not support forbidden traits. Got: {value}")
    if not all(names):
        raise BadRequest(
            f"{_PREFIX}Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. "
            f"Got an empty trait in: {value}"
        )
    return frozenset(names)


def _parse_traits(value: str, grammar: Grammar) -> tuple[list[str], set[str]]:
    sample = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if grammar.forbidden_traits else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    form = f"{_PREFIX}Expected 'required' parameter value of the form: {sample}. "
    plain: list[str] = []
    excluded: set[str] = set()
    for name in (piece.strip() for piece in value.split(",")):
        bare = name.lstrip("!").strip()
        if not bare:
            raise BadRequest(f"{form}Got an empty trait in: {value}")
        if name.startswith("!"):
            if not grammar.forbidden_traits:
                raise BadRequest(f"{form}Got: {value}")
            excluded.add(bare)
        else:
            plain.append(bare)
    return plain, excluded


def parse_member_of(values: list[str], grammar: Grammar, suffix: str = "") -> AggregateExpression:
    """All `member_of` values of one group, uuids normalised. Raises BadRequest."""
    if len(values) > 1 and not grammar.repeated_member_of:
        raise BadRequest(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        negative = value.startswith("!")
        if negative and not grammar.forbidden_aggregates:
            raise BadRequest(
                f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            )
        uuids = _parse_aggregates(value[1:] if negative else value, value)
        if negative:
            forbidden |= uuids
        else:
            required.append(uuids)
    return AggregateExpression(tuple(required), frozenset(forbidden))


def _parse_aggregates(value: str, given: str) -> frozenset[str]:
    if value.startswith("in:"):
        pieces = value.removeprefix("in:").split(",")
    elif "," in value:
        raise BadRequest(
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the "
            f"valid microversion. Got: {given}"
        )
    else:
        pieces = [value]
    uuids = set()
    for piece in pieces:
        normal = normalize_uuid(piece)
        if normal is None:
            raise BadRequest(
                f"{_PREFIX}Expected 'member_of' parameter to contain valid UUID(s). Got: {piece}"
            )
        uuids.add(normal)
    return frozenset(uuids)


def parse_in_tree(value: str) -> str:
    """The provider uuid of a group's `in_tree`, normalised. Raises BadRequest."""
    normal = normalize_uuid(value.strip())
    if normal is None:
        raise BadRequest(f"{_PREFIX}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return normal


def parse_same_subtree(value: str) -> frozenset[str]:
    """The suffixes of one `same_subtree` value, blanks around them trimmed. Raises BadRequest."""
    suffixes = [piece.strip() for piece in value.split(",")]
    if not all(suffixes):
        raise BadRequest(
            "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
            code="placement.query.bad_value",
        )
    return frozenset(suffixes)


def parse_positive(value: str) -> int | None:
    """A positive decimal number, None if the text is none; leading zeros are refused."""
    if not value.isascii() or not _POSITIVE.fullmatch(value) or value.startswith("0"):
        return None
    return int(value) if len(value) <= 18 else 10**18
