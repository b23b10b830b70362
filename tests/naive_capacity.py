"""How many more of a request could be placed one after another, by trying: for a handful of providers only.

Every state that claims can lead to is looked at, with the candidates that the naive enumerator has for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placement.engine.domain.groups import CandidateQuery
from tests.naive import Forest, NaiveProvider, combinations, merge

Amounts = frozenset[tuple[str, str, int]]


class TooLong(Exception):
    """There are too many states."""


def most_claims(
    providers: Sequence[NaiveProvider], query: CandidateQuery, anchor: str | None = None, states: int = 3000
) -> int:
    """The most claims of the query that can follow one another, at one anchor if given. Raises TooLong."""
    is_split = any(group.split for group in query.groups)
    seen: dict[frozenset[tuple[str, str, int]], int] = {}

    def best(state: Sequence[NaiveProvider], known: Iterable[Amounts] | None) -> int:
        key = frozenset((p.uuid, name, used) for p in state for name, used in p.used.items() if used)
        if key in seen:
            return seen[key]
        if len(seen) > states:
            raise TooLong
        able = (
            _claims(state, query, anchor) if known is None else [each for each in known if _fits(state, each)]
        )
        most = 0
        limit = _limit(state, able)
        for claim in sorted(able, key=lambda each: _left(state, each), reverse=True):
            most = max(most, 1 + best(claimed(state, claim), None if is_split else able))
            if most >= limit:
                break
        seen[key] = most
        return most

    return best(providers, None if is_split else _claims(providers, query, anchor))


def _claims(providers: Sequence[NaiveProvider], query: CandidateQuery, anchor: str | None) -> list[Amounts]:
    found = {
        merge(combination).allocations
        for root, combination in combinations(Forest(providers), query)
        if anchor in (None, root)
    }
    # What takes more than another way of the same providers never helps.
    return sorted(found, key=sorted)


def _free(provider: NaiveProvider, name: str) -> int:
    return provider.inventories[name].capacity - provider.used.get(name, 0)


def _fits(providers: Sequence[NaiveProvider], claim: Amounts) -> bool:
    by_uuid = {provider.uuid: provider for provider in providers}
    return all(_free(by_uuid[uuid], name) >= amount for uuid, name, amount in claim)


def _left(providers: Sequence[NaiveProvider], claim: Amounts) -> int:
    """The least that a claim leaves anywhere: where much is left, others still fit."""
    by_uuid = {provider.uuid: provider for provider in providers}
    return min(_free(by_uuid[uuid], name) - amount for uuid, name, amount in claim)


def _limit(providers: Sequence[NaiveProvider], claims: Sequence[Amounts]) -> int:
    """No more claims can follow, by the sums of each class."""
    if not claims:
        return 0
    by_uuid = {provider.uuid: provider for provider in providers}
    names = {name for claim in claims for _, name, _ in claim}
    limits = []
    for name in names:
        givers = {uuid for claim in claims for uuid, each, _ in claim if each == name}
        least = min(sum(amount for _, each, amount in claim if each == name) for claim in claims)
        if least:
            single = all(sum(each == name for _, each, _ in claim) == 1 for claim in claims)
            frees = (max(0, _free(by_uuid[uuid], name)) for uuid in givers)
            limits.append(sum(free // least for free in frees) if single else sum(frees) // least)
    return min(limits)


def claimed(providers: Sequence[NaiveProvider], claim: Amounts) -> list[NaiveProvider]:
    """The providers after a claim."""
    after = []
    for provider in providers:
        used = dict(provider.used)
        for uuid, name, amount in claim:
            if uuid == provider.uuid:
                used[name] = used.get(name, 0) + amount
        after.append(replace(provider, used=used))
    return after
