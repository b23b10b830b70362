"""The consumers on hosts, and what each asked for: kept with a claim, a manifest, or guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.common.manifest import ManifestError
from placement.engine.domain import groups
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import portions
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.engine.search.query import ForestQuery, GroupQuery, Ids
from placement.engine.search.simulation import Draws, SearchedForest
from placement.planning.board import PlacedConsumer, Spot
from placement.planning.plan import PodWish, QueryWish, sums_of
from placement.pods.cache import ClusterSnapshot
from placement.pods.cycle import ShapeRanking
from placement.pods.documents import PodDocument
from placement.pods.koordinator import annotations as keys
from placement.pods.model import RecordedPod
from placement.pods.reading import import_pod
from placement.pods.rules.rule import PodShape
from placement.pods.statements.pods import RESERVED
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import View
from placement.storage import tables
from placement.storage.database import Database, Executor

# A guess at what a consumer that was not claimed here may have asked for, from what it holds.
#
# It is equal amounts, each from a provider with the traits of the one that gives it now, on a host with the
# traits of the host it is on. Amounts from below one part of a host stay together below one part.


DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
"""The trait of hosts to which nova sends no servers: a state, which no request asks for."""


def guessed_query(
    forest: Forest, draws: Sequence[Draw], sharing_trait: int, disabled_trait: int | None
) -> ForestQuery:
    """Return the query that may have led to these draws on one host and on providers shared with it."""
    states = frozenset(() if disabled_trait is None else (disabled_trait,))
    amounts: dict[int, dict[int, int]] = defaultdict(dict)
    for draw in draws:
        amounts[draw.row][draw.class_id] = draw.amount
    suffixes: dict[int, str] = {}
    groups: list[GroupQuery] = []
    for rows in _alike(forest, amounts):
        suffix = f"_{len(groups)}"
        suffixes.update(dict.fromkeys(rows, suffix))
        groups.append(_group(forest, rows, amounts, suffix, states))
    tops: dict[int, set[int]] = defaultdict(set)
    for row in amounts:
        tops[_top(forest, row)].add(row)
    subtrees = []
    for top, members in sorted(tops.items()):
        if forest.providers.parent[top] >= 0 and (len(members) > 1 or top not in members):
            names = {suffixes[row] for row in members}
            if top not in members:
                suffix = f"_{len(groups)}"
                groups.append(GroupQuery(suffix, (), _traits(forest, top, states)))
                names.add(suffix)
            subtrees.append(frozenset(names))
    host = int(forest.providers.root[next(row for row in amounts if not _shares(forest, row, sharing_trait))])
    return ForestQuery(
        groups=tuple(groups),
        sharing_trait=sharing_trait,
        maximum=2**31,
        isolate=True,
        same_subtree=tuple(each for each in subtrees if len(each) > 1),
        root_required=_traits(forest, host, states),
        root_forbidden=states,
    )


def _alike(forest: Forest, amounts: dict[int, dict[int, int]]) -> list[list[int]]:
    """Return the providers that give something, with like ones below one part of a host (cores) grouped."""
    groups: dict[object, list[int]] = defaultdict(list)
    for row, held in sorted(amounts.items()):
        parent = int(forest.providers.parent[row])
        key: object = row
        if len(held) == 1 and parent >= 0 and forest.providers.parent[parent] >= 0:
            key = (parent, *held.items(), forest.traits.of(row))
        groups[key].append(row)
    return list(groups.values())


def _group(
    forest: Forest, rows: Sequence[int], amounts: dict[int, dict[int, int]], suffix: str, states: Ids
) -> GroupQuery:
    resources = {class_id: amount * len(rows) for class_id, amount in amounts[rows[0]].items()}
    return GroupQuery(
        suffix,
        tuple(sorted(resources.items())),
        _traits(forest, rows[0], states),
        split=frozenset(resources) if len(rows) > 1 else frozenset(),
    )


def _traits(forest: Forest, row: int, states: Ids) -> tuple[Ids, ...]:
    return tuple(frozenset((trait,)) for trait in sorted(forest.traits.of(row) - states))


def _shares(forest: Forest, row: int, sharing_trait: int) -> bool:
    return sharing_trait in forest.traits.of(row)


def _top(forest: Forest, row: int) -> int:
    """Return the provider right below the root that this one is, or is below; the root for the root."""
    parents = forest.providers.parent
    top = row
    while parents[top] >= 0 and parents[int(parents[top])] >= 0:
        top = int(parents[top])
    return top


# All consumers that hold something, with all that must be known to move them.


_AT_ONCE = 5000
_consumers = tables.consumers
_providers = tables.providers


class Holder(NamedTuple):
    """A consumer; pods have the id of their cluster. `request` is what it was claimed with, as it is kept.

    `group_name` is the group of consumers that it is in.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    cluster_id: int | None
    request: str | None
    group_name: str | None


_described = (
    sa.select(
        _consumers.c.uuid,
        _consumers.c.generation,
        tables.projects.c.external_id,
        tables.users.c.external_id,
        tables.consumer_types.c.name,
        _consumers.c.cluster_id,
        _consumers.c.request,
        _consumers.c.group_name,
    )
    .select_from(_consumers)
    .join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
    .join(tables.users, tables.users.c.id == _consumers.c.user_id)
    .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
)


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


def holders(connection: Executor, root_ids: Collection[int] | None = None) -> list[Holder]:
    """Return all consumers by uuid, or the ones that hold something of the trees with these roots."""
    rows = _rows(connection, _described, lambda some: _consumers.c.uuid.in_(_holding(some)), root_ids)
    found = {row[0]: Holder(*row) for row in rows}
    return [found[uuid] for uuid in sorted(found)]


def _holding(root_ids: Collection[int]) -> sa.Select[tuple[str]]:
    held = tables.allocations
    inside = sa.select(_providers.c.id).where(_providers.c.root_provider_id.in_(root_ids))
    return sa.select(held.c.consumer_id).where(held.c.resource_provider_id.in_(inside))


class AllocatedAmount(NamedTuple):
    """One allocation by ids."""

    consumer_uuid: str
    provider_id: int
    class_id: int
    amount: int


def amounts(connection: Executor, root_ids: Collection[int] | None = None) -> set[AllocatedAmount]:
    """Return all allocations, or all of the consumers that hold something of the trees with these roots."""
    held = tables.allocations.c
    statement = sa.select(held.consumer_id, held.resource_provider_id, held.resource_class_id, held.used)
    rows = _rows(connection, statement, lambda some: held.consumer_id.in_(_holding(some)), root_ids)
    return {AllocatedAmount(*row) for row in rows}


def manifests(
    connection: Executor, cluster_id: int, root_ids: Collection[int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return manifests by consumer, of pods on the nodes of a cluster, or on its nodes with these roots."""
    table, nodes = tables.pods, tables.nodes.c
    statement = sa.select(table.c.status["consumer"].as_string(), table.c.manifest).where(
        table.c.cluster_id == cluster_id, table.c.node_id.is_not(None), table.c.namespace != RESERVED
    )

    def narrowed(some: Collection[int]) -> sa.ColumnElement[bool]:
        return table.c.node_id.in_(sa.select(nodes.id).where(nodes.resource_provider_id.in_(some)))

    return {row[0]: row[1] for row in _rows(connection, statement, narrowed, root_ids) if row[0]}


QUERY, POD, GUESSED = "query", "pod", "guessed"
_STATIC = "kubernetes.io/config.mirror"


class Wishes:
    """A factory that makes wishes of queries and pods; equal ones share what is known about them."""

    def __init__(
        self, view: View, candidates: CandidateSearch, ground: SearchedForest, budget: Budget
    ) -> None:
        self._view, self._candidates, self._ground, self._budget = view, candidates, ground, budget
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
            mine = [replaced(query, self._budget) for query in queries]
            wish = self._known[key] = QueryWish(mine, len(self._known), self._shared)
        return wish

    def kept(self, text: str) -> QueryWish | None:
        """Return the wish kept with a claim, or None if it is unreadable or names what no longer exists."""
        if text not in self._kept:
            self._kept[text] = self._read(text)
        return self._kept[text]

    def _read(self, text: str) -> QueryWish | None:
        request = groups.read(text)
        if request is None:
            return None
        query, aggregate = request.query, request.cluster
        options = SearchOptions(default_order=False, cluster_aggregate=aggregate)
        try:
            return self.of_queries(self._candidates.wanted(self._view, query, options))
        except BadRequest:
            return None

    def guessed(self, draws: Draws, home: int | None) -> QueryWish:
        """Return a guess at the wish behind these draws, in one cluster (`home`: the id of its aggregate)."""
        known = self._view.names.trait_ids
        query = guessed_query(self._view.forest, draws, known[SHARING_TRAIT], known.get(DISABLED_TRAIT))
        return self.of_queries([in_cluster(query, home)])

    def of_pod(
        self,
        cluster: ClusterSnapshot,
        manifest: Mapping[str, Any],
        roots: Mapping[int, int],
        *,
        is_one: bool,
    ) -> PodWish:
        """Return a wish for one pod of a cluster, or any like it; `roots`: rows of its hosts by storage id.

        Raises ManifestError.
        """
        document = PodDocument.unnamed(cluster.facts.name, manifest)
        incoming = import_pod(document.manifest, cluster.facts.settings)
        shape = PodShape(incoming.request, incoming.selection, cluster.facts.settings)
        ranking = self._rankings.setdefault(shape, ShapeRanking(shape))
        return PodWish(cluster, roots, ranking, incoming, document, is_one=is_one)


def replaced(query: ForestQuery, budget: Budget) -> ForestQuery:
    """Return the query without order and limit, within the time of a plan."""
    return replace(query, budget=budget, order=None, maximum=2**31, considered=2**31)


def in_cluster(query: ForestQuery, home: int | None) -> ForestQuery:
    """Return the query in one cluster only, by the id of its aggregate."""
    if home is None:
        return query
    return replace(query, root_member_of=(*query.root_member_of, frozenset((home,))))


class Roster:
    """A roster of the consumers on hosts; pods of clusters that it is not given are fixed."""

    def __init__(
        self,
        view: View,
        ground: SearchedForest,
        wishes: Wishes,
        clusters: Sequence[ClusterSnapshot],
        homes: frozenset[int],
        budget: Budget,
    ) -> None:
        """Take the sources; `homes` are the ids of the aggregates of clusters."""
        self._view, self._ground, self._wishes, self._homes = view, ground, wishes, homes
        self._budget = budget
        self._clusters = {each.facts.id: each for each in clusters}
        self.rows = ground.rows_by_id()
        self.roots = {
            cluster_id: {node.root_id: self.rows[node.root_id] for node in each.columns.nodes}
            for cluster_id, each in self._clusters.items()
        }
        self._recorded = {
            pod.consumer: pod for each in clusters for node in each.columns.nodes for pod in node.pods
        }
        self._manifests: dict[str, Mapping[str, Any]] = {}

    def read(self, database: Database, root_ids: Collection[int] | None) -> list[PlacedConsumer]:
        """Return all consumers, or the ones that hold something of these trees. Raises SearchEnded."""
        with database.read() as connection:
            known = holders(connection, root_ids)
            held = amounts(connection, root_ids)
            for cluster_id in self._clusters:
                self._manifests.update(manifests(connection, cluster_id, root_ids))
        draws: dict[str, list[Draw]] = defaultdict(list)
        for each in held:
            row = self.rows.get(each.provider_id)
            if row is not None:
                draws[each.consumer_uuid].append(Draw(row, each.class_id, each.amount))
        return [found for each in known for found in self._consumer(each, tuple(sorted(draws[each.uuid])))]

    def _consumer(self, holder: Holder, draws: Draws) -> Iterator[PlacedConsumer]:
        self._budget.look()
        roots = {self._ground.root_of(draw.row) for draw in draws if not self._ground.is_shared(draw.row)}
        if not roots:
            return
        consumer = PlacedConsumer(
            holder.uuid,
            holder.generation,
            holder.project_id,
            holder.user_id,
            holder.consumer_type,
            Spot(min(roots), draws),
            QUERY,
        )
        if len(roots) > 1:
            # It is on each of the hosts.
            for root in sorted(roots):
                yield replace(consumer, spot=Spot(root, draws), fixed="holds something of several hosts")
        elif not all(self._ground.holds(draw) for draw in draws):
            yield replace(consumer, fixed="changed while the plan was made")
        elif holder.group_name is not None:
            yield replace(consumer, fixed="is in a group, about which others may have rules")
        elif holder.cluster_id is not None:
            yield self._pod(consumer, holder.cluster_id)
        else:
            yield self._claimed(consumer, holder.request)

    def _claimed(self, consumer: PlacedConsumer, request: str | None) -> PlacedConsumer:
        if request is not None and groups.is_under_rules(request):
            return replace(consumer, fixed="was claimed with rules between consumers, which are not kept")
        wish = None if request is None else self._wishes.kept(request)
        if wish is not None and wish.is_met_by(sums_of(consumer.spot.draws)):
            return replace(consumer, wish=wish)
        home = self._homes & self._view.forest.aggregates.of(consumer.root)
        guess = self._wishes.guessed(consumer.spot.draws, min(home, default=None))
        return replace(consumer, wish=guess, kind=GUESSED)

    def _pod(self, consumer: PlacedConsumer, cluster_id: int) -> PlacedConsumer:
        consumer = replace(consumer, kind=POD)
        cluster, pod = self._clusters.get(cluster_id), self._recorded.get(consumer.uuid)
        manifest = self._manifests.get(consumer.uuid)
        if cluster is None or pod is None or manifest is None:
            return replace(consumer, fixed="is no pod that is recorded here")
        metadata = manifest.get("metadata") or {}
        consumer = replace(consumer, pod=pod, labels=metadata.get("labels") or {})
        if fixed := _fixed(pod, metadata):
            return replace(consumer, fixed=fixed)
        try:
            wish = self._wishes.of_pod(cluster, _free(manifest), self.roots[cluster_id], is_one=True)
        except ManifestError as error:
            return replace(consumer, fixed=f"has a manifest that is refused: {error}")
        return replace(consumer, wish=wish)


def _fixed(pod: RecordedPod, metadata: Mapping[str, Any]) -> str:
    """Return why a pod cannot be moved; empty if it can."""
    if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
        return "belongs to its node: it is of a DaemonSet"
    if _STATIC in (metadata.get("annotations") or {}):
        return "belongs to its node: it is a static pod"
    if pod.reservation or keys.RESERVATION_AFFINITY in (metadata.get("annotations") or {}):
        return "takes from a reservation"
    return ""


def _free(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a pod as if it had no place yet."""
    metadata = dict(manifest.get("metadata") or {})
    given = {
        name: text
        for name, text in (metadata.get("annotations") or {}).items()
        if name != keys.RESOURCE_STATUS
    }
    spec = {name: part for name, part in (manifest.get("spec") or {}).items() if name != "nodeName"}
    return {**manifest, "metadata": {**metadata, "annotations": given}, "spec": spec}
