"""The score of a host and of a candidate word by word, to check scores and the ordered search against.

Source: scoring.md, "Scoring and ordering of candidates".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

from placement.engine.scoring.order import Order, Scope, Strategy, combined
from tests.naive import Candidate, Forest, NaiveProvider


@dataclass(frozen=True)
class SoftCondition:
    """A preference by names."""

    weight: int
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    absent: bool = False


@dataclass(frozen=True)
class NaiveScore:
    """A score, and what each listed resource adds to it."""

    score: int
    resources: dict[str, dict[str, Any]]


ALWAYS_COUNTED = (
    *("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"),
    *("CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"),
    *("cpu", "memory", "ephemeral-storage", "pods"),
)


def naive_score(
    strategy: Strategy, request: dict[str, int], capacity: dict[str, int], used: dict[str, int]
) -> NaiveScore:
    """The score of a host that uses so much of its capacity without the request."""
    counted: list[tuple[str, int, int, int]] = []
    parts: dict[str, dict[str, Any]] = {}
    for name, weight in strategy.resources:
        asked, size = request.get(name, 0), capacity.get(name, 0)
        if size <= 0:
            parts[name] = {"skipped": "no_capacity"}
        elif asked == 0 and name not in ALWAYS_COUNTED:
            parts[name] = {"skipped": "not_requested"}
        else:
            total = used.get(name, 0) + asked
            counted.append((name, weight, total, size))
            parts[name] = _part(strategy, weight, total, size)
    if strategy.type == "BalancedAllocation":
        asks = any(request.get(name, 0) for name, _ in strategy.resources)
        return NaiveScore(_balanced([Fraction(min(t, c), c) for _, _, t, c in counted]) if asks else 0, parts)
    scores = [(parts[name]["score"], weight) for name, weight, _, _ in counted]
    if strategy.type == "RequestedToCapacityRatio":
        positive = [(score, weight) for score, weight in scores if score > 0]
        return NaiveScore(floor(_mean(positive) + Fraction(1, 2)), parts)
    return NaiveScore(floor(_mean(scores)), parts)


def naive_sum(order: Order, request: dict[str, int], capacity: dict[str, int], used: dict[str, int]) -> int:
    """Return the weighted sum of all strategies for such a host, one alone on its own scale."""
    scores = [naive_score(strategy, request, capacity, used).score for strategy in order.strategies]
    if len(scores) == 1:
        return scores[0]
    scaled = [score * 100 // each.max_score for score, each in zip(scores, order.strategies, strict=True)]
    return sum(score * each.weight for score, each in zip(scaled, order.strategies, strict=True))


def _part(strategy: Strategy, weight: int, total: int, size: int) -> dict[str, Any]:
    if strategy.type == "BalancedAllocation":
        fraction = Fraction(min(total, size), size)
        return {"fraction": f"{fraction.numerator}/{fraction.denominator}"}
    if strategy.type == "LeastAllocated":
        return {"score": 0 if total > size else (size - total) * 100 // size, "weight": weight}
    if strategy.type == "MostAllocated":
        return {"score": min(total, size) * 100 // size, "weight": weight}
    assert strategy.shape is not None
    utilization = 100 if total > size else total * 100 // size
    return {"utilization": utilization, "score": _curve(strategy.shape.points, utilization), "weight": weight}


def _curve(points: Sequence[tuple[int, int]], utilization: int) -> int:
    if utilization <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if utilization <= right:
            # int() drops the fraction toward zero.
            return low + int(Fraction((high - low) * (utilization - left), right - left))
    return points[-1][1]


def _mean(scores: Sequence[tuple[int, int]]) -> Fraction:
    weights = sum(weight for _, weight in scores)
    return Fraction(sum(score * weight for score, weight in scores), weights) if weights else Fraction(0)


def _balanced(fractions: Sequence[Fraction]) -> int:
    if len(fractions) < 2:
        return 100
    mean = sum(fractions) / Fraction(len(fractions))
    variance = sum((fraction - mean) ** 2 for fraction in fractions) / len(fractions)
    return max(k for k in range(101) if Fraction((100 - k) ** 2, 10000) >= variance)


@dataclass(frozen=True)
class Host:
    """What a candidate asks of its host, and what that host has and uses; amounts by class."""

    request: dict[str, int]
    capacity: dict[str, int]
    used: dict[str, int]


def anchor_of(forest: Forest, candidate: Candidate) -> str | None:
    """The root of the candidate's tree; without providers that do not share, of the tree all are in."""
    mapped = {uuid for _, members in candidate.mappings for uuid in members}
    own = {forest.root(uuid) for uuid in mapped if not forest[uuid].shares}
    roots = own or {forest.root(uuid) for uuid in mapped}
    return roots.pop() if len(roots) == 1 else None


def scope_of(forest: Forest, candidate: Candidate, scope: Scope) -> list[NaiveProvider]:
    """The providers that make up the host."""
    drawn = {uuid for uuid, _, _ in candidate.allocations}
    anchor = anchor_of(forest, candidate) if scope is Scope.TREE else None
    return [provider for provider in forest if provider.uuid in drawn or forest.root(provider.uuid) == anchor]


def host_of(forest: Forest, candidate: Candidate, scope: Scope) -> Host:
    """Sums over the providers in scope; in scope `allocated` per class over those it is taken from."""
    request: Counter[str] = Counter()
    for _, name, amount in candidate.allocations:
        request[name] += amount
    taken = {(uuid, name) for uuid, name, _ in candidate.allocations}
    capacity: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for provider in scope_of(forest, candidate, scope):
        for name, inventory in provider.inventories.items():
            if scope is Scope.TREE or (provider.uuid, name) in taken:
                capacity[name] += inventory.capacity
                used[name] += provider.used.get(name, 0)
    return Host(dict(request), dict(capacity), dict(used))


def score_of(
    providers: Iterable[NaiveProvider],
    candidate: Candidate,
    order: Order,
    preferences: Sequence[SoftCondition] = (),
) -> int:
    """The score of one candidate."""
    forest = Forest(providers)
    scores = []
    for strategy in order.strategies:
        host = host_of(forest, candidate, strategy.scope)
        scores.append(naive_score(strategy, host.request, host.capacity, host.used).score)
    total: int = combined(order.strategies, scores, alone=not preferences)
    scope = scope_of(forest, candidate, order.scope)
    for soft in preferences:
        carried = any(
            provider.traits & soft.traits or provider.aggregates & soft.aggregates for provider in scope
        )
        total += 100 * soft.weight * (carried != soft.absent)
    return total
