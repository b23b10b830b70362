"""The parameters of searches for candidates: meaning, values and JSON form of each.

The values of a query string become the JSON form, and `stored_requests.query_of` makes a query of it.
Source: placement-api.md, "Query grammar", "Value parsing".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from placement.common.microversions import Feature, Microversion
from placement.engine.domain.errors import BadRequest, BadValues, parameter
from placement.engine.domain.groups import SplitRule
from placement.engine.domain.identifiers import normalize_uuid
from placement.http import schemas as fields
from placement.http.operations import PREFIX, Parameter
from placement.http.query_strings import POLICIES, Parameters, parse_positive, refuse_value

_RESOURCES_FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: "
)
_INTEGER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 1000
_ANY_OF = "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'"


class Expression(NamedTuple):
    """Parsed `required` or `member_of` values: any-of sets that must all be met, and what must be absent."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def parse_resources(value: str) -> dict[str, int]:
    """Read `VCPU:2,MEMORY_MB:1024` as amounts by class; of a repeated class the last amount wins.

    Raises BadRequest naming the offending piece.
    """
    if not value.strip():
        raise BadRequest(f"{_RESOURCES_FORM}empty string.")
    resources = {}
    for piece in value.split(","):
        name, colon, text = piece.partition(":")
        if not colon or ":" in text:
            raise BadRequest(f"{_RESOURCES_FORM}{piece}.")
        # Clients fold long query strings, which leaves blanks around amounts.
        trimmed = text.strip()
        if not (trimmed.isascii() and _INTEGER.fullmatch(trimmed)):
            raise BadRequest(
                f"Requested resource {name} expected positive integer amount. Got: {text}.", value=trimmed
            )
        # No amount is above 64 bits; not converting longer digits keeps hostile input cheap.
        amount = int(trimmed) if len(trimmed) <= _MOST_DIGITS else int(trimmed[:20])
        if amount < 1:
            raise BadRequest(f"Requested resource {name} requires amount >= 1. Got: {amount}.", value=trimmed)
        resources[name] = amount
    return resources


def parse_required(values: list[str], version: Microversion) -> Expression:
    """Read all `required` values of one group; only the last counts where repeating is not understood.

    Raises BadRequest.
    """
    knows_any_of = version.offers(Feature.ANY_OF_TRAITS)
    knows_forbidden = version.offers(Feature.FORBIDDEN_TRAITS)
    sample = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if knows_forbidden else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    form = f"{PREFIX}Expected 'required' parameter value of the form: {sample}. "
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values if knows_any_of else values[-1:]:
        if value.startswith("in:"):
            if not knows_any_of:
                raise BadRequest(f"{PREFIX}{_ANY_OF} only supported since microversion 1.39. Got: {value}")
            required.append(_parse_any_of(value))
            continue
        for name in (piece.strip() for piece in value.split(",")):
            bare = name.lstrip("!").strip()
            if not bare:
                raise BadRequest(f"{form}Got an empty trait in: {value}")
            if not name.startswith("!"):
                required.append(frozenset((bare,)))
            elif knows_forbidden:
                forbidden.add(bare)
            else:
                raise BadRequest(f"{form}Got: {value}")
    return Expression(tuple(dict.fromkeys(required)), frozenset(forbidden))


def _parse_any_of(value: str) -> frozenset[str]:
    names = [name.strip() for name in value.removeprefix("in:").split(",")]
    if any(name.startswith("!") for name in names):
        raise BadRequest(f"{PREFIX}{_ANY_OF} does not support forbidden traits. Got: {value}")
    if not all(names):
        raise BadRequest(
            f"{PREFIX}Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. "
            f"Got an empty trait in: {value}"
        )
    return frozenset(names)


def parse_member_of(
    values: list[str], version: Microversion, suffix: str = "", *, named: bool = False
) -> Expression:
    """Read all `member_of` values of one group, uuids normalised; `named`: names of aggregates may stand.

    Raises BadRequest.
    """
    if len(values) > 1 and not version.offers(Feature.REPEATED_MEMBER_OF):
        raise BadRequest(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        negative = value.startswith("!")
        if negative and not version.offers(Feature.FORBIDDEN_AGGREGATES):
            raise BadRequest(
                f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            )
        uuids = _parse_aggregates(value[1:] if negative else value, value, named=named)
        if negative:
            forbidden |= uuids
        else:
            required.append(uuids)
    return Expression(tuple(required), frozenset(forbidden))


def _parse_aggregates(value: str, given: str, *, named: bool) -> frozenset[str]:
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
        normal = normalize_uuid(piece) or (piece.strip() if named else "")
        if not normal:
            raise BadRequest(f"{PREFIX}Expected 'member_of' parameter to contain valid UUID(s). Got: {piece}")
        uuids.add(normal)
    return frozenset(uuids)


def parse_in_tree(value: str, *, named: bool = False) -> str:
    """Return the provider uuid of a group's `in_tree`, normalised; `named`: or its name.

    Raises BadRequest.
    """
    normal = normalize_uuid(value.strip()) or (value.strip() if named else "")
    if not normal:
        raise BadRequest(f"{PREFIX}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return normal


def parse_same_subtree(value: str) -> frozenset[str]:
    """Return the suffixes of one `same_subtree` value, blanks around them trimmed. Raises BadRequest."""
    suffixes = [piece.strip() for piece in value.split(",")]
    if not all(suffixes):
        raise BadRequest(
            "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
            code="placement.query.bad_value",
        )
    return frozenset(suffixes)


class Surroundings(NamedTuple):
    """The surroundings of values: the version, the suffix of the group, and all parameters.

    `own`: errors are in our words, and not in the incumbent's.
    """

    version: Microversion
    suffix: str
    parameters: Parameters
    own: bool = True


@dataclass(frozen=True, slots=True)
class QueryParameter(Parameter):
    """A parameter with a reader that turns its values, at least one, into members of the JSON form."""

    read: Callable[[list[str], Surroundings], Mapping[str, Any]] = field(kw_only=True)


def _member_of(values: list[str], surroundings: Surroundings) -> Mapping[str, Any]:
    required, forbidden = parse_member_of(
        values, surroundings.version, surroundings.suffix, named=surroundings.own
    )
    return {"member_of": required, "forbidden_aggregates": forbidden}


def _limit(values: list[str], surroundings: Surroundings) -> Mapping[str, Any]:
    numbers = [parse_positive(value) for value in values]
    for value, number in zip(values, numbers, strict=True):
        if number is None:
            reason = f"{fields.shown(value)} does not match '^[1-9][0-9]*$'"
            raise refuse_value(
                surroundings.parameters, "limit", value, reason, "pattern", own=surroundings.own
            )
    return {"limit": numbers[0]}


def _group_policy(values: list[str], surroundings: Surroundings) -> Mapping[str, Any]:
    for value in values:
        if value not in POLICIES:
            reason = f"{fields.shown(value)} is not one of {list(POLICIES)}"
            raise refuse_value(
                surroundings.parameters, "group_policy", value, reason, "enum", own=surroundings.own
            )
    return {"group_policy": values[0]}


def _root_required(values: list[str], _surroundings: Surroundings) -> Mapping[str, Any]:
    if len(values) > 1:
        raise BadRequest(
            "Query parameter 'root_required' may be specified only once.",
            code="placement.query.duplicate_key",
        )
    required, forbidden = parse_required(values, Feature.ROOT_REQUIRED.value)
    plain = frozenset().union(*required)
    both = sorted(plain & forbidden)
    if both:
        raise BadRequest(
            f"Conflicting required and forbidden traits found in root_required: {', '.join(both)}",
            code="placement.query.bad_value",
        )
    return {"root_required": plain, "root_forbidden": forbidden}


NUMERIC_SUFFIX = "([1-9][0-9]*)"
STRING_SUFFIX = "([a-zA-Z0-9_-]{1,64})"
OF_GROUPS = (
    QueryParameter(
        "resources",
        "Amounts, `VCPU:2,MEMORY_MB:512`.",
        since=Feature.CANDIDATES,
        read=lambda values, _: {"resources": [parse_resources(value) for value in values][-1]},
    ),
    QueryParameter(
        "required",
        "Traits, `!` before forbidden ones; `in:A,B` for one of several.",
        since=Feature.CANDIDATES_TRAITS,
        repeated=Feature.ANY_OF_TRAITS,
        read=lambda values, surroundings: parse_required(values, surroundings.version)._asdict(),
    ),
    QueryParameter(
        "member_of",
        "An aggregate, `in:` and several, or `!` and a forbidden one.",
        since=Feature.CANDIDATES_BY_AGGREGATE,
        repeated=Feature.REPEATED_MEMBER_OF,
        read=_member_of,
    ),
    QueryParameter(
        "in_tree",
        "The uuid of a provider of the tree.",
        since=Feature.CANDIDATES_IN_TREE,
        read=lambda values, surroundings: {
            "in_tree": [parse_in_tree(value, named=surroundings.own) for value in values][-1]
        },
    ),
)
OF_ALL = (
    QueryParameter(
        "limit",
        "Candidates at most.",
        {"type": "integer", "minimum": 1},
        since=Feature.CANDIDATES_LIMIT,
        read=_limit,
    ),
    QueryParameter(
        "group_policy",
        "Whether groups with suffixes may share a provider.",
        {"type": "string", "enum": list(POLICIES)},
        since=Feature.GRANULAR_GROUPS,
        read=_group_policy,
    ),
    QueryParameter(
        "root_required",
        "Traits of the root, `!` before forbidden ones.",
        since=Feature.ROOT_REQUIRED,
        read=_root_required,
    ),
    QueryParameter(
        "same_subtree",
        "Suffixes of groups that one provider has at or below it, by commas.",
        since=Feature.SAME_SUBTREE,
        repeated=True,
        read=lambda values, _: {"same_subtree": [parse_same_subtree(value) for value in values]},
    ),
)


def members_of(
    parameters: Sequence[QueryParameter], given: Mapping[str, list[str]], surroundings: Surroundings
) -> dict[str, Any]:
    """Return the members that values by parameter become, read in the order of `given`. Raises BadRequest."""
    readers = {each.name: each.read for each in parameters}
    members: dict[str, Any] = {}
    for name, values in given.items():
        if values:
            try:
                members.update(readers[name](values, surroundings))
            except BadValues:
                raise
            except BadRequest as error:
                raise placed(f"{name}{surroundings.suffix}", error, surroundings.own) from None
    return members


def placed(name: str, bad_request: BadRequest, own: bool) -> BadRequest:
    """Return the error about a parameter; in our words its name comes first."""
    if not own:
        return bad_request
    (finding,) = bad_request.findings
    finding = replace(finding, what=finding.what.removeprefix(PREFIX))
    return BadValues([finding], code=bad_request.code).within(parameter(name))


def _suffixed(name: str, suffix: str, stated: str, since: Feature, until: Feature | None = None) -> Parameter:
    """Return a parameter for names that end with the suffix of a group: an object of parameters."""
    pattern = f"^{name}{suffix}$"
    schema = {
        "type": "object",
        "patternProperties": {pattern: {"type": "string"}},
        "additionalProperties": False,
    }
    return Parameter(f"{name}{{S}}", stated, schema, since=since, until=until, explode=True)


def _of_suffixed_groups() -> Iterator[Parameter]:
    for known in OF_GROUPS:
        assert known.since is not None
        stated = f"For the group with the suffix S. {known.description}"
        since = max(known.since, Feature.GRANULAR_GROUPS, key=lambda feature: feature.value)
        yield _suffixed(known.name, NUMERIC_SUFFIX, stated, since, Feature.STRING_SUFFIXES)
        yield _suffixed(known.name, STRING_SUFFIX, stated, Feature.STRING_SUFFIXES)


PARAMETERS = (*OF_GROUPS, *_of_suffixed_groups(), *OF_ALL)
CLOSED = Parameter(
    "closed", "true: closed hosts count as well.", {"type": "string", "enum": ["true", "false"]}
)
# The parameters that our own search has beside these, except for splits.
OWN = (
    Parameter("order_by", "The name of an order, or strategies as JSON."),
    Parameter("cluster", "The only cluster to look in."),
    Parameter("prefer", "Traits or aggregates, by commas, with `!` and `:weight`.", repeated=True),
    Parameter("explain", "1: why something fits, or nothing.", {"type": "string", "enum": ["0", "1"]}),
    CLOSED,
)
SPLITS = (
    _suffixed(
        "split",
        STRING_SUFFIX,
        "Classes whose amounts may come from several providers, of the group with the suffix S.",
        Feature.STRING_SUFFIXES,
    ),
    _suffixed("split_rule", STRING_SUFFIX, f"How: one of {', '.join(SplitRule)}.", Feature.STRING_SUFFIXES),
)
WORLD = Parameter("world", "Imagined changes, as JSON; nothing is written.")
EXTENDED = (*PARAMETERS, *SPLITS, *OWN)


class _Conjunction(fields.Sequence):
    """A JSON array of any-of sets, each of which counts once."""

    def checked(self, value: Any) -> Any:
        """Return the sets."""
        return list(dict.fromkeys(map(frozenset, super().checked(value))))


def _name() -> fields.String:
    return fields.String(1, 255, fields.NAME)


class GroupSchema(fields.VersionedSchema):
    """One request group; of an inner list one item is enough."""

    resources = fields.Mapping(fields.NAME, fields.Integer(1))
    required = _Conjunction(fields.AnyOf(_name()))
    forbidden = fields.Sequence(_name())
    member_of = _Conjunction(fields.AnyOf(fields.UuidOrName()))
    forbidden_aggregates = fields.Sequence(fields.UuidOrName())
    in_tree = fields.UuidOrName()
    split = fields.Sequence(_name(), least=1, unique=True)
    split_rule = fields.Choice(list(SplitRule))


class QueryBodySchema(fields.VersionedSchema):
    """A query with its groups by suffix."""

    groups = fields.Mapping(fields.SUFFIX, fields.Object(GroupSchema), required=True, least=1)
    group_policy = fields.Choice(POLICIES)
    same_subtree = fields.Sequence(fields.Sequence(fields.String(1, 64), least=1))
    root_required = fields.Sequence(_name())
    root_forbidden = fields.Sequence(_name())
