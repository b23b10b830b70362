"""The names of aggregates and hosts in a query replaced by UUIDs, which are all that searches know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placement.allocations.candidates import SoftCondition
from placement.engine.domain.errors import BadValues, Finding, NameKind, NamesOf, RequestPlace
from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.identifiers import is_dashed_uuid
from placement.providers.called import CalledUuids


class _NamedPlace(NamedTuple):
    name: str
    place: RequestPlace


def has_names(query: CandidateQuery) -> bool:
    """Return whether a query calls something by name; UUIDs are normalised when a query is read."""
    return any(is_dashed_uuid(each.name) is None for each in (*_aggregates_in(query), *_providers_in(query)))


def with_uuids(query: CandidateQuery, called: CalledUuids, cluster: str | None = None) -> CandidateQuery:
    """Return the query with UUIDs for all names; `cluster` is the one that it looks in.

    Raises BadValues naming the place of each unknown or ambiguous name.
    """
    if not has_names(query):
        return query
    aggregates = called.aggregates(dict(_aggregates_in(query)), cluster)
    hosts = called.providers(dict(_providers_in(query)))

    def of_group(group: RequestGroup) -> RequestGroup:
        return replace(
            group,
            member_of=tuple(_replaced(any_of, aggregates) for any_of in group.member_of),
            forbidden_aggregates=_replaced(group.forbidden_aggregates, aggregates),
            in_tree=None if group.in_tree is None else hosts[group.in_tree],
        )

    return replace(query, groups=tuple(map(of_group, query.groups)))


def soft_with_uuids(
    conditions: Sequence[SoftCondition],
    called: CalledUuids,
    place: RequestPlace,
    cluster: str | None = None,
) -> tuple[SoftCondition, ...]:
    """Return preferences with UUIDs for the names of aggregates. Raises BadRequest as `with_uuids` does."""
    names = {each.aggregate: place for each in conditions if each.aggregate is not None}
    try:
        uuids = called.aggregates(names, cluster)
    except BadValues as error:
        # It may have been meant for a trait as well.
        raise error.with_findings(map(_neither, error.findings)) from None
    return tuple(
        each if each.aggregate is None else each._replace(aggregate=uuids[each.aggregate])
        for each in conditions
    )


def _neither(finding: Finding) -> Finding:
    """Return the finding about a name that no aggregate has as one about a preference."""
    if finding.known is None:
        return finding
    kind = NameKind.TRAIT if finding.value.isupper() else NameKind.AGGREGATE
    return replace(finding, what=f"No trait or aggregate {finding.value} found", known=NamesOf(kind))


def _replaced(names: frozenset[str], uuids: Mapping[str, str]) -> frozenset[str]:
    return frozenset(uuids[name] for name in names)


def _aggregates_in(query: CandidateQuery) -> Iterator[_NamedPlace]:
    for group in query.groups:
        for name in frozenset[str]().union(*group.member_of):
            yield _NamedPlace(name, query.place(group, "member_of"))
        negative = "forbidden_aggregates" if query.is_json else "member_of"
        for name in group.forbidden_aggregates:
            yield _NamedPlace(name, query.place(group, negative))


def _providers_in(query: CandidateQuery) -> Iterator[_NamedPlace]:
    for group in query.groups:
        if group.in_tree is not None:
            yield _NamedPlace(group.in_tree, query.place(group, "in_tree"))
