"""The options of our own search beyond the Placement grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from placement.allocations.kubernetes_resources import is_for_pods, node_class_of
from placement.engine.domain.errors import BadRequest
from placement.engine.scoring.order import Order
from placement.engine.search.query import ForestOrder, Preference
from placement.providers.statements.names import Names


class SoftCondition(NamedTuple):
    """A preference by names: `trait` or `aggregate` (a uuid) is given, `absent` prefers hosts without it."""

    weight: int
    trait: str | None = None
    aggregate: str | None = None
    absent: bool = False

    @property
    def text(self) -> str:
        """Return the condition as callers write it, without its weight."""
        return f"{'!' if self.absent else ''}{self.trait or self.aggregate}"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options by which candidates are narrowed, ordered and explained.

    `default_order`: the service's order counts instead of `order`. `strict`: `order` may list only resource
    classes that exist. `cluster_aggregate`: only trees of hosts in that aggregate, the one of `cluster`.
    `has_nodes`: `cluster` has Kubernetes nodes. `remarks`: parts of `order` without effect.
    """

    order: Order | None = None
    default_order: bool = True
    strict: bool = False
    preferences: tuple[SoftCondition, ...] = ()
    cluster: str | None = None
    cluster_aggregate: str | None = None
    has_nodes: bool = False
    explain: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def aggregates(self) -> Iterator[str]:
        """Yield the aggregates that are mentioned."""
        if self.cluster_aggregate is not None:
            yield self.cluster_aggregate
        for soft in self.preferences:
            if soft.aggregate is not None:
                yield soft.aggregate


NO_OPTIONS = SearchOptions()


def resolve_order(
    order: Order | None,
    asked: Set[str],
    options: SearchOptions,
    known: Names,
    aggregates: Mapping[str, int],
) -> ForestOrder | None:
    """Return the order by ids for a request of the `asked` classes, None if nothing is to be ordered.

    Raises BadRequest for unknown names.
    """
    if order is None and not options.preferences:
        return None
    order = order or Order(())
    unknown = sorted(_listed(order) - known.class_ids.keys())
    if unknown and options.strict:
        raise BadRequest(f"order_by: No such resource class {', '.join(unknown)}.")
    if is_for_pods(asked, has_nodes=options.has_nodes):
        order = order.for_trees(node_class_of)
    listed = _listed(order)
    return ForestOrder(
        order,
        {name: known.class_ids[name] for name in sorted(listed) if name in known.class_ids},
        tuple(_preference(soft, known, aggregates) for soft in options.preferences),
    )


def _listed(order: Order) -> Set[str]:
    return {name for strategy in order.strategies for name, _ in strategy.resources}


def _preference(soft: SoftCondition, known: Names, aggregates: Mapping[str, int]) -> Preference:
    if soft.trait is None:
        uuid = soft.aggregate or ""
        ids = frozenset((aggregates[uuid],)) if uuid in aggregates else frozenset[int]()
        return Preference(soft.weight, aggregates=ids, absent=soft.absent)
    if soft.trait not in known.trait_ids:
        raise BadRequest(f"prefer: No such trait {soft.trait}.")
    return Preference(soft.weight, traits=frozenset((known.trait_ids[soft.trait],)), absent=soft.absent)
