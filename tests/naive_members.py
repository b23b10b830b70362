"""Rules between members, written for obviousness: what a placement breaks, and how many fit by trying."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.member_rules import MemberRule, Per, RuleKind
from tests.naive import Forest, NaiveProvider, combinations, merge

Amounts = frozenset[tuple[str, str, int]]


@dataclass(frozen=True)
class NaiveMember:
    """What a member asks for, and its name in rules."""

    query: CandidateQuery
    name: str


class TooLong(Exception):
    """There are too many ways."""


def places(forest: Forest, rule: MemberRule, providers: Sequence[str]) -> set[str]:
    """Where a consumer with something of these providers is, as the rule counts it."""
    if rule.per is Per.PROVIDER:
        nearest = (_nearest(forest, rule, uuid) for uuid in providers)
        return {uuid for uuid in nearest if uuid is not None}
    roots = {forest.root(uuid) for uuid in providers if not forest[uuid].shares}
    roots = roots or {forest.root(uuid) for uuid in providers}
    assert len(roots) == 1
    if rule.per is Per.HOST:
        return roots
    aggregates = forest[roots.pop()].aggregates
    return set(aggregates & {*rule.aggregates} if rule.aggregates else aggregates)


def _nearest(forest: Forest, rule: MemberRule, uuid: str) -> str | None:
    lineage = forest.lineage(uuid)
    for at, each in enumerate(lineage):
        provider = forest[each]
        is_marked = (
            rule.resource_class in provider.inventories
            or rule.trait in provider.traits
            or rule.depth == len(lineage) - 1 - at
        )
        if is_marked:
            return each
    return None


def breaches(
    forest: Forest,
    rules: Sequence[MemberRule],
    members: Sequence[tuple[str, Sequence[str]]],
    others: Sequence[Sequence[Sequence[str]]],
) -> Iterator[str]:
    """Every rule that must hold and does not.

    `members` that were placed: name and providers; `others`: for each rule the providers of those who count.
    """
    for rule, counted in zip(rules, others, strict=True):
        mine = [
            places(forest, rule, has) for name, has in members if rule.members is None or name in rule.members
        ]
        there = [places(forest, rule, has) for has in counted]
        if rule.weight is None and not _holds(rule, mine, there):
            yield f"{rule.text}: {mine} with {there}"


def _holds(rule: MemberRule, mine: Sequence[set[str]], there: Sequence[set[str]]) -> bool:
    counts = Counter(place for each in (*mine, *there) for place in each)
    touched = {place for each in mine for place in each}
    if rule.kind is RuleKind.AT_MOST:
        return all(counts[place] <= rule.count for place in touched)
    if rule.kind is RuleKind.TOGETHER:
        common = set.intersection(*mine) if mine else set()
        common &= set().union(*there) if there else common
        return not mine or bool(common)
    fewest = min(counts[place] for place in rule.aggregates)
    return all(mine) and all(counts[place] - fewest <= rule.max_skew for place in touched)


def most_members(
    providers: Sequence[NaiveProvider],
    members: Sequence[NaiveMember],
    rules: Sequence[MemberRule],
    others: Sequence[Sequence[Sequence[str]]],
    ways: int = 20_000,
) -> int:
    """The most members that can be placed side by side, by trying all ways. Raises TooLong."""
    forest = Forest(providers)
    known: list[list[Amounts]] = []
    for member in members:
        found = {merge(each).allocations for _, each in combinations(forest, member.query)}
        known.append(sorted(found, key=sorted))
    free = {
        (each.uuid, name): inventory.capacity - each.used.get(name, 0)
        for each in providers
        for name, inventory in each.inventories.items()
    }
    best = tried = 0

    def go_on(at: int, left: Mapping[tuple[str, str], int], placed: list[tuple[str, list[str]]]) -> None:
        nonlocal best, tried
        tried += 1
        if tried > ways:
            raise TooLong
        if len(placed) + len(members) - at <= best:
            return
        if at == len(members):
            if not [*breaches(forest, rules, placed, others)]:
                best = len(placed)
            return
        for amounts in known[at]:
            if all(left[uuid, name] >= amount for uuid, name, amount in amounts):
                rest = {**left}
                for uuid, name, amount in amounts:
                    rest[uuid, name] -= amount
                go_on(at + 1, rest, [*placed, (members[at].name, sorted({uuid for uuid, _, _ in amounts}))])
        go_on(at + 1, left, placed)

    go_on(0, free, [])
    return best
