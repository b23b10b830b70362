"""The consumers on hosts and their requests: kept with a claim, a manifest, or guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import Consumer
from placement.common.manifest import ManifestError
from placement.engine.domain import stored_requests
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.portions import portions
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.engine.search.query import ForestQuery
from placement.engine.search.simulation import Draws, SearchedForest
from placement.planning.demands import PodPlanDemand, QueryPlanDemand
from placement.planning.guessed_queries import guessed_query
from placement.planning.simulation import PlacedConsumer, Spot
from placement.planning.sums import sums_of
from placement.pods.decide.ranking import ShapeRanking
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.decide.rules.rule import PodShape
from placement.pods.koordinator import annotations as keys
from placement.pods.state.model import RecordedPod
from placement.pods.store.cache import ClusterSnapshot
from placement.pods.store.statements import RESERVED
from placement.providers.statements.names import CLOSING_TRAIT, SHARING_TRAIT
from placement.providers.view import View
from placement.storage import tables
from placement.storage.database import Database, Executor

QUERY, POD, GUESSED = "query", "pod", "guessed"
_MIGRATION = "MIGRATION"
_AT_ONCE = 5000
_STATIC = "kubernetes.io/config.mirror"
_consumers = tables.consumers
_providers = tables.providers
_described = consumers.described.add_columns(
    _consumers.c.cluster_id, _consumers.c.request, _consumers.c.group_name
)
_held = tables.allocations.c
_amounts = sa.select(_held.consumer_id, _held.resource_provider_id, _held.resource_class_id, _held.used)


class PlacedConsumers:
    """The consumers on hosts, with their demands; equal demands are one object, with all that is known of it.

    Pods of other clusters than the given ones are fixed.
    """

    def __init__(
        self,
        view: View,
        candidates: CandidateSearch,
        forest: SearchedForest,
        clusters: Sequence[ClusterSnapshot],
        budget: Budget,
    ) -> None:
        """Prepare to read, with demands for this forest."""
        self._view, self._candidates, self._forest = view, candidates, forest
        self._budget = budget
        self._clusters = {each.facts.id: each for each in clusters}
        (rows,) = forest.alive().nonzero()
        self.rows = dict(zip(forest.providers.id[rows].tolist(), rows.tolist(), strict=True))
        nodes = [(each.facts.id, node) for each in clusters for node in each.columns.nodes]
        # Rows of the hosts of each cluster by storage id.
        self._roots: dict[int, dict[int, int]] = {cluster_id: {} for cluster_id in self._clusters}
        for cluster_id, node in nodes:
            self._roots[cluster_id][node.root_id] = self.rows[node.root_id]
        self._recorded = {pod.consumer: pod for _, node in nodes for pod in node.pods}
        self._manifests: dict[str, Mapping[str, Any]] = {}
        self._shared = frozenset(forest.shared_classes())
        self._known: dict[object, QueryPlanDemand] = {}
        self._kept: dict[str, QueryPlanDemand | None] = {}
        self._rankings: dict[PodShape, ShapeRanking] = {}

    def query_demand(self, queries: Sequence[ForestQuery]) -> QueryPlanDemand:
        """Return the demand of a query by ids, or of two: the second one is for core trees."""
        # Queries are equal whatever their budgets are.
        key = tuple(queries)
        demand = self._known.get(key)
        if demand is None:
            # Without order and limit, within the time of a plan.
            unlimited = [
                replace(query, budget=self._budget, order=None, maximum=2**31, considered=2**31)
                for query in queries
            ]
            demand = self._known[key] = QueryPlanDemand(unlimited, len(self._known), self._shared)
        return demand

    def pod_demand(
        self, cluster: ClusterSnapshot, manifest: Mapping[str, Any], *, is_one: bool
    ) -> PodPlanDemand:
        """Return the demand of one pod of a cluster, or of any like it. Raises ManifestError."""
        document = PodDocument.unnamed(cluster.facts.name, manifest)
        pod_spec = reading_of(document.manifest, cluster.facts.settings)
        shape = PodShape(pod_spec.request, pod_spec.selection, cluster.facts.settings)
        ranking = self._rankings.setdefault(shape, ShapeRanking(shape))
        roots = self._roots[cluster.facts.id]
        return PodPlanDemand(cluster, roots, ranking, pod_spec, document, is_one=is_one)

    def read(self, database: Database, root_ids: Collection[int] | None) -> list[PlacedConsumer]:
        """Return all consumers, or the ones that hold something of these trees. Raises SearchEnded."""
        with database.read() as connection:
            rows = _rows(connection, _described, lambda ids: _consumers.c.uuid.in_(_holding(ids)), root_ids)
            known = {row[0]: row for row in rows}
            rows = _rows(connection, _amounts, lambda ids: _held.consumer_id.in_(_holding(ids)), root_ids)
            # A consumer may hold something of several portions of trees.
            held = set(map(tuple, rows))
            for cluster_id in self._clusters:
                self._manifests.update(_manifests(connection, cluster_id, root_ids))
        draws: dict[str, list[Draw]] = defaultdict(list)
        for uuid, provider_id, class_id, amount in held:
            row = self.rows.get(provider_id)
            if row is not None:
                draws[uuid].append(Draw(row, class_id, amount))
        return [
            found
            for uuid in sorted(known)
            for found in self._consumer(known[uuid], tuple(sorted(draws[uuid])))
        ]

    def _consumer(self, row: Sequence[Any], draws: Draws) -> Iterator[PlacedConsumer]:
        """Yield the consumer of a row of `_described`; `request` is the one it was claimed with, as kept."""
        *described, cluster_id, request, group_name = row
        self._budget.look()
        roots = {self._forest.root_of(draw.row) for draw in draws if draw.row not in self._forest.sharers}
        if not roots:
            return
        spot = Spot(min(roots), draws)
        # All but the dedicated CPUs.
        consumer = PlacedConsumer(*Consumer(*described)[:-1], spot, QUERY)
        if len(roots) > 1:
            # It is on each of the hosts.
            for root in sorted(roots):
                yield replace(consumer, spot=Spot(root, draws), fixed="holds something of several hosts")
        elif consumer.consumer_type == _MIGRATION:
            yield replace(consumer, fixed="is the record of a migration, which ends in nova")
        elif not all(self._forest.holds(draw) for draw in draws):
            yield replace(consumer, fixed="changed while the plan was made")
        elif group_name is not None:
            yield replace(consumer, fixed="is in a group that other consumers may have rules about")
        elif cluster_id is not None:
            yield self._pod(consumer, cluster_id)
        else:
            yield self._claimed(consumer, request)

    def _claimed(self, consumer: PlacedConsumer, request: str | None) -> PlacedConsumer:
        if request is not None and stored_requests.is_under_rules(request):
            return replace(consumer, fixed="was claimed with rules between consumers, which are not stored")
        demand = None if request is None else self._kept_demand(request)
        draws, names = consumer.spot.draws, self._view.names.trait_ids
        if demand is not None and demand.is_met_by(sums_of(draws)):
            return replace(consumer, demand=demand)
        query = guessed_query(self._view.forest, draws, names[SHARING_TRAIT], names.get(CLOSING_TRAIT))
        return replace(consumer, demand=self.query_demand([query]), kind=GUESSED)

    def _kept_demand(self, text: str) -> QueryPlanDemand | None:
        """Return the demand kept with a claim, or None if it is unreadable or names things that are gone."""
        if text not in self._kept:
            request, demand = stored_requests.read(text), None
            if request is not None:
                options = SearchOptions(default_order=False, cluster_aggregate=request.cluster)
                with suppress(BadRequest):
                    demand = self.query_demand(self._candidates.wanted(self._view, request.query, options))
            self._kept[text] = demand
        return self._kept[text]

    def _pod(self, consumer: PlacedConsumer, cluster_id: int) -> PlacedConsumer:
        consumer = replace(consumer, kind=POD)
        cluster, pod = self._clusters.get(cluster_id), self._recorded.get(consumer.uuid)
        manifest = self._manifests.get(consumer.uuid)
        if cluster is None or pod is None or manifest is None:
            return replace(consumer, fixed="is not recorded here as a pod")
        metadata = manifest.get("metadata") or {}
        consumer = replace(consumer, pod=pod, labels=metadata.get("labels") or {})
        if fixed := _why_pod_stays(pod, metadata):
            return replace(consumer, fixed=fixed)
        try:
            demand = self.pod_demand(cluster, _without_place(manifest), is_one=True)
        except ManifestError as error:
            return replace(consumer, fixed=f"has a manifest that is refused: {error}")
        return replace(consumer, demand=demand)


def _why_pod_stays(pod: RecordedPod, metadata: Mapping[str, Any]) -> str:
    """Return why a pod cannot be anywhere else; empty if it can."""
    annotations = metadata.get("annotations") or {}
    if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
        return "belongs to its node: it is of a DaemonSet"
    if _STATIC in annotations:
        return "belongs to its node: it is a static pod"
    if pod.reservation or keys.RESERVATION_AFFINITY in annotations:
        return "takes from a reservation"
    return ""


def _without_place(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest as if the pod had no place yet."""
    metadata = manifest.get("metadata") or {}
    annotations = {
        name: text
        for name, text in (metadata.get("annotations") or {}).items()
        if name != keys.RESOURCE_STATUS
    }
    spec = {name: part for name, part in (manifest.get("spec") or {}).items() if name != "nodeName"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _rows(
    connection: Executor,
    statement: sa.Select[Any],
    narrowed: Callable[[Collection[int]], sa.ColumnElement[bool]],
    root_ids: Collection[int] | None,
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a statement, or the rows that `narrowed` leaves of it for some roots at a time."""
    if root_ids is None:
        yield from connection.execute(statement)
        return
    for ids in portions(sorted(root_ids), _AT_ONCE):
        yield from connection.execute(statement.where(narrowed(ids)))


def _holding(root_ids: Collection[int]) -> sa.Select[tuple[str]]:
    inside = sa.select(_providers.c.id).where(_providers.c.root_provider_id.in_(root_ids))
    return sa.select(_held.consumer_id).where(_held.resource_provider_id.in_(inside))


def _manifests(
    connection: Executor, cluster_id: int, root_ids: Collection[int] | None
) -> dict[str, dict[str, Any]]:
    """Return manifests by consumer, of pods on the nodes of a cluster, or on its nodes with these roots."""
    table, nodes = tables.pods, tables.nodes.c
    statement = sa.select(tables.TextMember(table.c.status, "consumer"), table.c.manifest).where(
        table.c.cluster_id == cluster_id, table.c.node_id.is_not(None), table.c.namespace != RESERVED
    )

    def narrowed(ids: Collection[int]) -> sa.ColumnElement[bool]:
        return table.c.node_id.in_(sa.select(nodes.id).where(nodes.resource_provider_id.in_(ids)))

    return {row[0]: row[1] for row in _rows(connection, statement, narrowed, root_ids) if row[0]}
