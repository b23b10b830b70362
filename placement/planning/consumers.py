"""The consumers on hosts, and what each asked for: kept with a claim, a manifest, or guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import Consumer
from placement.common.manifest import ManifestError
from placement.engine.domain import groups
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import portions
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.engine.search.query import ForestQuery, GroupQuery, Ids
from placement.engine.search.simulation import Draws, SearchedForest
from placement.planning.board import PlacedConsumer, PodWish, QueryWish, Spot, sums_of
from placement.pods.cache import ClusterSnapshot
from placement.pods.cycle import ShapeRanking
from placement.pods.koordinator import annotations as keys
from placement.pods.reading import PodDocument, import_pod
from placement.pods.rules.rule import PodShape
from placement.pods.statements import RESERVED
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import View
from placement.storage import tables
from placement.storage.database import Database, Executor

DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
"""The trait of hosts to which nova sends no servers: a state, which no request asks for."""
_AT_ONCE = 5000
_consumers = tables.consumers
_providers = tables.providers


def guessed_query(
    forest: Forest, draws: Sequence[Draw], sharing_trait: int, disabled_trait: int | None
) -> ForestQuery:
    """Return the query that may have led to these draws on one host and on providers shared with it.

    It is a guess at what a consumer that was not claimed here may have asked for. It is equal amounts, each
    from a provider with the traits of the one that gives it now, on a host with the traits and aggregates
    (cluster, availability zone, storage) of the host it is on. Amounts from below one part of a host stay
    together below one part.
    """
    states = frozenset(() if disabled_trait is None else (disabled_trait,))
    parents = forest.providers.parent

    def traits(row: int) -> tuple[Ids, ...]:
        return tuple(frozenset((trait,)) for trait in sorted(forest.traits.of(row) - states))

    amounts: dict[int, dict[int, int]] = defaultdict(dict)
    for draw in draws:
        amounts[draw.row][draw.class_id] = draw.amount
    suffixes: dict[int, str] = {}
    groups: list[GroupQuery] = []
    for rows in _alike(forest, amounts):
        suffix = f"_{len(groups)}"
        suffixes.update(dict.fromkeys(rows, suffix))
        resources = {class_id: amount * len(rows) for class_id, amount in amounts[rows[0]].items()}
        split = frozenset(resources) if len(rows) > 1 else frozenset[int]()
        groups.append(GroupQuery(suffix, tuple(sorted(resources.items())), traits(rows[0]), split=split))
    # The part of its host that each provider is, or is below; the root for the root.
    tops: dict[int, set[int]] = defaultdict(set)
    for row in amounts:
        top = row
        while _is_below_part(forest, top):
            top = int(parents[top])
        tops[top].add(row)
    subtrees = []
    for top, members in sorted(tops.items()):
        if parents[top] >= 0 and (len(members) > 1 or top not in members):
            names = {suffixes[row] for row in members}
            if top not in members:
                suffix = f"_{len(groups)}"
                groups.append(GroupQuery(suffix, (), traits(top)))
                names.add(suffix)
            subtrees.append(frozenset(names))
    own = next(row for row in amounts if sharing_trait not in forest.traits.of(row))
    root = int(forest.providers.root[own])
    return ForestQuery(
        groups=tuple(groups),
        sharing_trait=sharing_trait,
        maximum=2**31,
        isolate=True,
        same_subtree=tuple(each for each in subtrees if len(each) > 1),
        root_required=traits(root),
        root_forbidden=states,
        root_member_of=tuple(frozenset((each,)) for each in sorted(forest.aggregates.of(root))),
    )


def _is_below_part(forest: Forest, row: int) -> bool:
    parents = forest.providers.parent
    return bool(parents[row] >= 0 and parents[int(parents[row])] >= 0)


def _alike(forest: Forest, amounts: Mapping[int, Mapping[int, int]]) -> Iterable[list[int]]:
    """Return the providers that give something, with like ones below one part of a host (cores) grouped."""
    groups: dict[object, list[int]] = defaultdict(list)
    for row, held in sorted(amounts.items()):
        key: object = row
        if len(held) == 1 and _is_below_part(forest, row):
            key = (int(forest.providers.parent[row]), *held.items(), forest.traits.of(row))
        groups[key].append(row)
    return groups.values()


# All consumers that hold something, with all that must be known to move them.


_described = consumers.described.add_columns(
    _consumers.c.cluster_id, _consumers.c.request, _consumers.c.group_name
)
_held = tables.allocations.c
_amounts = sa.select(_held.consumer_id, _held.resource_provider_id, _held.resource_class_id, _held.used)


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
    for some in portions(sorted(root_ids), _AT_ONCE):
        yield from connection.execute(statement.where(narrowed(some)))


def _holding(root_ids: Collection[int]) -> sa.Select[tuple[str]]:
    inside = sa.select(_providers.c.id).where(_providers.c.root_provider_id.in_(root_ids))
    return sa.select(_held.consumer_id).where(_held.resource_provider_id.in_(inside))


def manifests(
    connection: Executor, cluster_id: int, root_ids: Collection[int] | None
) -> dict[str, dict[str, Any]]:
    """Return manifests by consumer, of pods on the nodes of a cluster, or on its nodes with these roots."""
    table, nodes = tables.pods, tables.nodes.c
    statement = sa.select(tables.TextMember(table.c.status, "consumer"), table.c.manifest).where(
        table.c.cluster_id == cluster_id, table.c.node_id.is_not(None), table.c.namespace != RESERVED
    )

    def narrowed(some: Collection[int]) -> sa.ColumnElement[bool]:
        return table.c.node_id.in_(sa.select(nodes.id).where(nodes.resource_provider_id.in_(some)))

    return {row[0]: row[1] for row in _rows(connection, statement, narrowed, root_ids) if row[0]}


QUERY, POD, GUESSED = "query", "pod", "guessed"
_STATIC = "kubernetes.io/config.mirror"


class Roster:
    """A roster of the consumers on hosts and of their wishes; equal wishes share what is known about them.

    Pods of clusters that it is not given are fixed.
    """

    def __init__(
        self,
        view: View,
        candidates: CandidateSearch,
        ground: SearchedForest,
        clusters: Sequence[ClusterSnapshot],
        budget: Budget,
    ) -> None:
        """Take the sources."""
        self._view, self._candidates, self._ground = view, candidates, ground
        self._budget = budget
        self._clusters = {each.facts.id: each for each in clusters}
        (rows,) = ground.alive().nonzero()
        self.rows = dict(zip(ground.providers.id[rows].tolist(), rows.tolist(), strict=True))
        nodes = [(each.facts.id, node) for each in clusters for node in each.columns.nodes]
        # Rows of the hosts of each cluster by storage id.
        self._roots: dict[int, dict[int, int]] = {cluster_id: {} for cluster_id in self._clusters}
        for cluster_id, node in nodes:
            self._roots[cluster_id][node.root_id] = self.rows[node.root_id]
        self._recorded = {pod.consumer: pod for _, node in nodes for pod in node.pods}
        self._manifests: dict[str, Mapping[str, Any]] = {}
        self._shared = frozenset(ground.shared_classes())
        self._known: dict[object, QueryWish] = {}
        self._kept: dict[str, QueryWish | None] = {}
        self._rankings: dict[PodShape, ShapeRanking] = {}

    def of_queries(self, queries: Sequence[ForestQuery]) -> QueryWish:
        """Return a wish for a query by ids, or for two: the second one is for core trees."""
        # Budgets are no part of what is asked.
        key = tuple(queries)
        wish = self._known.get(key)
        if wish is None:
            # Without order and limit, within the time of a plan.
            mine = [
                replace(query, budget=self._budget, order=None, maximum=2**31, considered=2**31)
                for query in queries
            ]
            wish = self._known[key] = QueryWish(mine, len(self._known), self._shared)
        return wish

    def of_pod(self, cluster: ClusterSnapshot, manifest: Mapping[str, Any], *, is_one: bool) -> PodWish:
        """Return a wish for one pod of a cluster, or for any like it. Raises ManifestError."""
        document = PodDocument.unnamed(cluster.facts.name, manifest)
        incoming = import_pod(document.manifest, cluster.facts.settings)
        shape = PodShape(incoming.request, incoming.selection, cluster.facts.settings)
        ranking = self._rankings.setdefault(shape, ShapeRanking(shape))
        roots = self._roots[cluster.facts.id]
        return PodWish(cluster, roots, ranking, incoming, document, is_one=is_one)

    def read(self, database: Database, root_ids: Collection[int] | None) -> list[PlacedConsumer]:
        """Return all consumers, or the ones that hold something of these trees. Raises SearchEnded."""
        with database.read() as connection:
            rows = _rows(connection, _described, lambda some: _consumers.c.uuid.in_(_holding(some)), root_ids)
            known = {row[0]: row for row in rows}
            rows = _rows(connection, _amounts, lambda some: _held.consumer_id.in_(_holding(some)), root_ids)
            # A consumer may hold something of several portions of trees.
            held = set(map(tuple, rows))
            for cluster_id in self._clusters:
                self._manifests.update(manifests(connection, cluster_id, root_ids))
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
        roots = {self._ground.root_of(draw.row) for draw in draws if draw.row not in self._ground.sharers}
        if not roots:
            return
        spot = Spot(min(roots), draws)
        # All but the dedicated CPUs.
        consumer = PlacedConsumer(*Consumer(*described)[:-1], spot, QUERY)
        if len(roots) > 1:
            # It is on each of the hosts.
            for root in sorted(roots):
                yield replace(consumer, spot=Spot(root, draws), fixed="holds something of several hosts")
        elif not all(self._ground.holds(draw) for draw in draws):
            yield replace(consumer, fixed="changed while the plan was made")
        elif group_name is not None:
            yield replace(consumer, fixed="is in a group, about which others may have rules")
        elif cluster_id is not None:
            yield self._pod(consumer, cluster_id)
        else:
            yield self._claimed(consumer, request)

    def _claimed(self, consumer: PlacedConsumer, request: str | None) -> PlacedConsumer:
        if request is not None and groups.is_under_rules(request):
            return replace(consumer, fixed="was claimed with rules between consumers, which are not kept")
        wish = None if request is None else self._kept_wish(request)
        draws, names = consumer.spot.draws, self._view.names.trait_ids
        if wish is not None and wish.is_met_by(sums_of(draws)):
            return replace(consumer, wish=wish)
        query = guessed_query(self._view.forest, draws, names[SHARING_TRAIT], names.get(DISABLED_TRAIT))
        return replace(consumer, wish=self.of_queries([query]), kind=GUESSED)

    def _kept_wish(self, text: str) -> QueryWish | None:
        """Return the wish kept with a claim, or None if it is unreadable or names what no longer exists."""
        if text not in self._kept:
            request, wish = groups.read(text), None
            if request is not None:
                options = SearchOptions(default_order=False, cluster_aggregate=request.cluster)
                with suppress(BadRequest):
                    wish = self.of_queries(self._candidates.wanted(self._view, request.query, options))
            self._kept[text] = wish
        return self._kept[text]

    def _pod(self, consumer: PlacedConsumer, cluster_id: int) -> PlacedConsumer:
        consumer = replace(consumer, kind=POD)
        cluster, pod = self._clusters.get(cluster_id), self._recorded.get(consumer.uuid)
        manifest = self._manifests.get(consumer.uuid)
        if cluster is None or pod is None or manifest is None:
            return replace(consumer, fixed="is no pod that is recorded here")
        metadata = manifest.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        consumer = replace(consumer, pod=pod, labels=metadata.get("labels") or {})
        if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
            return replace(consumer, fixed="belongs to its node: it is of a DaemonSet")
        if _STATIC in annotations:
            return replace(consumer, fixed="belongs to its node: it is a static pod")
        if pod.reservation or keys.RESERVATION_AFFINITY in annotations:
            return replace(consumer, fixed="takes from a reservation")
        # The manifest as if the pod had no place yet.
        free = {name: text for name, text in annotations.items() if name != keys.RESOURCE_STATUS}
        spec = {name: part for name, part in (manifest.get("spec") or {}).items() if name != "nodeName"}
        manifest = {**manifest, "metadata": {**metadata, "annotations": free}, "spec": spec}
        try:
            wish = self.of_pod(cluster, manifest, is_one=True)
        except ManifestError as error:
            return replace(consumer, fixed=f"has a manifest that is refused: {error}")
        return replace(consumer, wish=wish)
