"""The query string of allocation candidates as a CandidateQuery.

Source: placement-api.md, "Query grammar", "Value parsing", "Refused combinations".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from placement.api.candidate_parameters import (
    NUMERIC_SUFFIX,
    OF_ALL,
    OF_GROUPS,
    STRING_SUFFIX,
    grammar_of,
)
from placement.api.described import names_of
from placement.api.microversions import Feature, Microversion
from placement.api.queries import (
    POLICIES,
    Parameters,
    every,
    read,
    refuse_unknown,
    refuse_value,
    schema_of,
    violated,
)
from placement.api.schemas.fields import MOST_KEYS, shown
from placement.domain import grammar
from placement.domain.errors import BadRequest, Violation
from placement.domain.grammar import Grammar
from placement.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup

_MISSING = "placement.query.missing_value"
_BAD = "placement.query.bad_value"


@lru_cache(maxsize=256)
def parse_text(query_string: bytes, version: Microversion) -> CandidateQuery:
    """The query of a query string; kept, as callers send the same ones again and again. Raises BadRequest."""
    return parse(read(query_string.decode("latin-1")), version)


def parse(parameters: Parameters, version: Microversion) -> CandidateQuery:
    """The query. Raises BadRequest."""
    keys = _keys(version)
    keys.check(parameters)
    limit = _limit(parameters)
    policy = _policy(parameters)
    root_required, root_forbidden = _root_required(every(parameters, "root_required"))
    subtrees = tuple(grammar.parse_same_subtree(value) for value in every(parameters, "same_subtree"))
    drafts = keys.drafts(parameters)
    groups = tuple(draft.group(version) for draft in drafts)
    if version.offers(Feature.SAME_SUBTREE):
        _check_resourceless(groups, subtrees)
    elif version.offers(Feature.GRANULAR_GROUPS):
        _check_orphans(drafts, groups)
    if version.offers(Feature.FORBIDDEN_TRAITS):
        _check_conflicts(groups)
    if policy is None and sum(1 for group in groups if group.suffix != UNSUFFIXED) > 1:
        raise BadRequest(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidateQuery(
        groups=groups,
        isolate=policy == "isolate",
        same_subtree=subtrees,
        root_required=root_required,
        root_forbidden=root_forbidden,
        limit=limit,
        one_provider_per_tree=not version.offers(Feature.NESTED_CANDIDATES),
    )


@cache
def _keys(version: Microversion) -> _Keys:
    return _Keys(version)


class _Keys:
    """Which parameters a version knows."""

    def __init__(self, version: Microversion) -> None:
        self._granular = version.offers(Feature.GRANULAR_GROUPS)
        self._single = list(names_of(OF_ALL, version))
        names = sorted(names_of(OF_GROUPS, version))
        suffix = STRING_SUFFIX if version.offers(Feature.STRING_SUFFIXES) else NUMERIC_SUFFIX
        self._patterns = [f"^{name}{suffix}?$" if self._granular else f"^{name}$" for name in names]
        self._compiled = [(name, re.compile(f"{name}{suffix}?")) for name in names]
        self._plain = names

    def check(self, parameters: Parameters) -> None:
        """Raises BadRequest naming what is not known or, before granular groups, what is missing."""
        if not self._granular:
            known = ["resources", *self._single, *self._plain]
            if not every(parameters, "resources"):
                missing = Violation("'resources' is a required property", "required")
                raise violated(missing, schema_of(known, ["resources"]), parameters)
            refuse_unknown(parameters, known)
            return
        strange = {key for key, _ in parameters if key not in self._single and self._split(key) is None}
        if strange:
            listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
            verb = "does" if len(strange) == 1 else "do"
            patterns = ", ".join(repr(pattern) for pattern in self._patterns)
            reason = f"{listed} {verb} not match any of the regexes: {patterns}"
            schema = schema_of(self._single)
            schema["patternProperties"] = {pattern: {"type": "string"} for pattern in self._patterns}
            refused = violated(Violation(reason, "additionalProperties"), schema, parameters)
            raise BadRequest(f"{refused}. Parameters of the Placement API: {self._in_words()}")

    def _in_words(self) -> str:
        """The parameters for whoever reads no regular expressions."""
        groups, single = ", ".join(self._plain), ", ".join(self._single)
        return f"{single}, and of each group, its suffix behind them as in resources1: {groups}"

    def _split(self, key: str) -> tuple[str, str] | None:
        """The keyword and the suffix of a group's parameter."""
        for name, pattern in self._compiled:
            found = pattern.fullmatch(key)
            if found:
                return name, found.group(1) or UNSUFFIXED
        return None

    def drafts(self, parameters: Parameters) -> list[_Draft]:
        """The parameters of each group, groups in order of first appearance."""
        found: dict[str, _Draft] = {}
        for key, value in parameters:
            if key in self._single:
                continue
            split = self._split(key)
            assert split is not None
            name, suffix = split
            found.setdefault(suffix, _Draft(suffix)).values.setdefault(name, []).append(value)
        return list(found.values())


@dataclass(slots=True)
class _Draft:
    """The raw values of one group by keyword."""

    suffix: str
    values: dict[str, list[str]] = field(default_factory=dict)

    def group(self, version: Microversion) -> RequestGroup:
        """The group, its values parsed in the order they came; of some parameters only the last counts."""
        forms = grammar_of(version)
        resources: dict[str, int] = {}
        traits = grammar.TraitExpression()
        aggregates = grammar.AggregateExpression()
        in_tree = None
        for name, values in self.values.items():
            if name == "resources":
                resources = [grammar.parse_resources(value) for value in values][-1]
            elif name == "required":
                traits = grammar.parse_required(values, forms)
            elif name == "member_of":
                aggregates = grammar.parse_member_of(values, forms, self.suffix)
            else:
                in_tree = [grammar.parse_in_tree(value) for value in values][-1]
        return RequestGroup(
            suffix=self.suffix,
            resources=resources,
            required=traits.required,
            forbidden=traits.forbidden,
            member_of=aggregates.required,
            forbidden_aggregates=aggregates.forbidden,
            in_tree=in_tree,
        )


def _limit(parameters: Parameters) -> int | None:
    numbers = []
    for value in every(parameters, "limit"):
        number = grammar.parse_positive(value)
        if number is None:
            reason = f"{shown(value)} does not match '^[1-9][0-9]*$'"
            raise refuse_value(parameters, "limit", value, reason, "pattern")
        numbers.append(number)
    return numbers[0] if numbers else None


def _policy(parameters: Parameters) -> str | None:
    values = every(parameters, "group_policy")
    for value in values:
        if value not in POLICIES:
            reason = f"{shown(value)} is not one of {list(POLICIES)}"
            raise refuse_value(parameters, "group_policy", value, reason, "enum")
    return values[0] if values else None


def _root_required(values: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    if len(values) > 1:
        raise BadRequest(
            "Query parameter 'root_required' may be specified only once.",
            code="placement.query.duplicate_key",
        )
    if not values:
        return frozenset(), frozenset()
    expression = grammar.parse_required([values[0]], Grammar(any_of_traits=False))
    required = frozenset(trait for any_of in expression.required for trait in any_of)
    both = sorted(required & expression.forbidden)
    if both:
        raise BadRequest(
            f"Conflicting required and forbidden traits found in root_required: {', '.join(both)}", code=_BAD
        )
    return required, expression.forbidden


def _check_resourceless(groups: Sequence[RequestGroup], subtrees: Iterable[frozenset[str]]) -> None:
    if not any(group.resources for group in groups):
        raise BadRequest("There must be at least one resources or resources[$S] parameter.", code=_MISSING)
    named = frozenset(suffix for subtree in subtrees for suffix in subtree)
    bare = [group.suffix for group in groups if not group.resources and group.suffix not in named]
    if bare:
        raise BadRequest(
            "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            f"bad group(s) - {bare}.",
            code=_BAD,
        )
    suffixes = [group.suffix for group in groups]
    unknown = sorted(named.difference(suffixes))
    if unknown:
        raise BadRequest(
            f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {suffixes}.",
            code=_BAD,
        )


def _check_orphans(drafts: Sequence[_Draft], groups: Sequence[RequestGroup]) -> None:
    lacking = [draft for draft, group in zip(drafts, groups, strict=True) if not group.resources]
    traits = [
        f"required{draft.suffix}"
        for draft, group in zip(drafts, groups, strict=True)
        if not group.resources and group.required
    ]
    if traits:
        raise BadRequest(
            "All traits parameters must be associated with resources.  "
            f"Found the following orphaned traits keys: {', '.join(traits)}"
        )
    members = [f"member_of{draft.suffix}" for draft in lacking if "member_of" in draft.values]
    if members:
        raise BadRequest(
            "All member_of parameters must be associated with resources. "
            f"Found the following orphaned member_of keys: {', '.join(members)}"
        )
    if lacking:
        raise BadRequest("All request groups must specify resources.")
    if not drafts:
        raise BadRequest("At least one request group (`resources` or `resources{$S}`) is required.")


def _check_conflicts(groups: Sequence[RequestGroup]) -> None:
    conflicts = []
    for group in groups:
        impossible = [any_of for any_of in group.required if any_of <= group.forbidden]
        if impossible:
            traits = ", ".join(sorted(frozenset().union(*impossible)))
            conflicts.append(f"required{group.suffix}: ({traits})")
    if conflicts:
        raise BadRequest(
            "Conflicting required and forbidden traits found in the following traits keys: "
            f"{', '.join(conflicts)}"
        )
