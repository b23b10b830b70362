"""The score of a candidate word by word, to check the ordered search against.

Source: scoring.md, "A host in Placement terms", "Ordering".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placement.scoring.host import score_host
from placement.scoring.order import Order, combined
from placement.scoring.strategy import Scope
from tests.naive import Candidate, Forest, NaiveProvider


@dataclass(frozen=True)
class SoftCondition:
    """A preference by names."""

    weight: int
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    absent: bool = False


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
        scores.append(score_host(strategy, host.request, host.capacity, host.used).score)
    total: int = combined(order.strategies, scores, alone=not preferences)
    scope = scope_of(forest, candidate, order.scope)
    for soft in preferences:
        carried = any(
            provider.traits & soft.traits or provider.aggregates & soft.aggregates for provider in scope
        )
        total += 100 * soft.weight * (carried != soft.absent)
    return total
