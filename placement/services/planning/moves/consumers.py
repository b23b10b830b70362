"""Everybody who is on hosts, and what each asked for: kept with a claim, a manifest, or guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.pod_request import import_pod
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.domain import kept_request
from placement.domain.errors import BadRequest
from placement.kubernetes.errors import ManifestError
from placement.scheduling.pipeline import PodShape, ShapeRanking
from placement.search.answer import Draw
from placement.search.budget import Budget
from placement.search.ground import Draws, Ground
from placement.search.query import ForestQuery
from placement.services.clusters.pod_documents import PodDocument
from placement.services.following.cluster_cache import ClusterSnapshot
from placement.services.following.forest_keeper import View
from placement.services.placement.candidates import Candidates
from placement.services.placement.search_options import SearchOptions
from placement.services.planning.moves.board import Consumer, Spot
from placement.services.planning.moves.guessing import DISABLED_TRAIT, guessed_query
from placement.services.planning.moves.wishes import PodWish, QueryWish, sums_of
from placement.storage.database import Database
from placement.storage.statements import holders
from placement.storage.statements.holders import Holder
from placement.storage.statements.names import SHARING_TRAIT

QUERY, POD, GUESSED = "query", "pod", "guessed"
_STATIC = "kubernetes.io/config.mirror"


class Wishes:
    """Makes wishes of queries and pods; like ones share what was found out about them."""

    def __init__(self, view: View, candidates: Candidates, ground: Ground, budget: Budget) -> None:
        self._view, self._candidates, self._ground, self._budget = view, candidates, ground, budget
        self._shared = frozenset(ground.shared_classes())
        self._known: dict[object, QueryWish] = {}
        self._kept: dict[str, QueryWish | None] = {}
        self._rankings: dict[PodShape, ShapeRanking] = {}

    def of_queries(self, queries: Sequence[ForestQuery]) -> QueryWish:
        """A wish for a query by ids, or for two: that for core trees is the second."""
        # Budgets are no part of what is asked.
        key = tuple(queries)
        wish = self._known.get(key)
        if wish is None:
            mine = [replaced(query, self._budget) for query in queries]
            wish = self._known[key] = QueryWish(mine, len(self._known), self._shared)
        return wish

    def kept(self, text: str) -> QueryWish | None:
        """What was kept with a claim; None if it cannot be read here, or names what is not there any more."""
        if text not in self._kept:
            self._kept[text] = self._read(text)
        return self._kept[text]

    def _read(self, text: str) -> QueryWish | None:
        request = kept_request.read(text)
        if request is None:
            return None
        query, aggregate = request.query, request.cluster
        options = SearchOptions(default_order=False, cluster_aggregate=aggregate)
        try:
            return self.of_queries(self._candidates.wanted(self._view, query, options))
        except BadRequest:
            return None

    def guessed(self, draws: Draws, home: int | None) -> QueryWish:
        """What somebody with these draws may have asked for, in the same cluster (`home`: its aggregate)."""
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
        """A wish for one pod of a cluster, or any like it; `roots` are the rows of its hosts by storage id.

        Raises ManifestError.
        """
        document = PodDocument.unnamed(cluster.facts.name, manifest)
        incoming = import_pod(document.manifest, cluster.facts.settings)
        shape = PodShape(incoming.request, incoming.selection, cluster.facts.settings)
        ranking = self._rankings.setdefault(shape, ShapeRanking(shape))
        return PodWish(cluster, roots, ranking, incoming, document, is_one=is_one)


def replaced(query: ForestQuery, budget: Budget) -> ForestQuery:
    """The query without order and limit, within the time of a plan."""
    return replace(query, budget=budget, order=None, maximum=2**31, considered=2**31)


def in_cluster(query: ForestQuery, home: int | None) -> ForestQuery:
    """The query in one cluster only, by the id of its aggregate."""
    if home is None:
        return query
    return replace(query, root_member_of=(*query.root_member_of, frozenset((home,))))


class Roster:
    """The consumers that are on hosts; pods only of those clusters that it is given."""

    def __init__(
        self,
        view: View,
        ground: Ground,
        wishes: Wishes,
        clusters: Sequence[ClusterSnapshot],
        homes: frozenset[int],
        budget: Budget,
    ) -> None:
        """`homes` are the aggregates of clusters."""
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

    def read(self, database: Database, root_ids: Collection[int] | None) -> list[Consumer]:
        """Everybody, or those who hold something of the trees with these roots. Raises SearchEnded."""
        with database.read() as connection:
            known = holders.holders(connection, root_ids)
            held = holders.amounts(connection, root_ids)
            for cluster_id in self._clusters:
                self._manifests.update(holders.manifests(connection, cluster_id, root_ids))
        draws: dict[str, list[Draw]] = defaultdict(list)
        for each in held:
            row = self.rows.get(each.provider_id)
            if row is not None:
                draws[each.consumer_uuid].append(Draw(row, each.class_id, each.amount))
        return [found for each in known for found in self._consumer(each, tuple(sorted(draws[each.uuid])))]

    def _consumer(self, holder: Holder, draws: Draws) -> Iterator[Consumer]:
        self._budget.look()
        roots = {self._ground.root_of(draw.row) for draw in draws if not self._ground.is_shared(draw.row)}
        if not roots:
            return
        consumer = Consumer(
            holder.uuid,
            holder.generation,
            holder.project_id,
            holder.user_id,
            holder.consumer_type,
            Spot(min(roots), draws),
            QUERY,
        )
        if len(roots) > 1:
            # Each of the hosts has it.
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

    def _claimed(self, consumer: Consumer, request: str | None) -> Consumer:
        if request is not None and kept_request.is_under_rules(request):
            return replace(consumer, fixed="was claimed with rules between consumers, which are not kept")
        wish = None if request is None else self._wishes.kept(request)
        if wish is not None and wish.is_met_by(sums_of(consumer.spot.draws)):
            return replace(consumer, wish=wish)
        home = self._homes & self._view.forest.aggregates.of(consumer.root)
        guess = self._wishes.guessed(consumer.spot.draws, min(home, default=None))
        return replace(consumer, wish=guess, kind=GUESSED)

    def _pod(self, consumer: Consumer, cluster_id: int) -> Consumer:
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
    """Why a pod cannot be moved, if so."""
    if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
        return "belongs to its node: it is of a DaemonSet"
    if _STATIC in (metadata.get("annotations") or {}):
        return "belongs to its node: it is a static pod"
    if pod.reservation or keys.RESERVATION_AFFINITY in (metadata.get("annotations") or {}):
        return "takes from a reservation"
    return ""


def _free(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a pod as if it had no place yet."""
    metadata = dict(manifest.get("metadata") or {})
    given = {
        name: text
        for name, text in (metadata.get("annotations") or {}).items()
        if name != keys.RESOURCE_STATUS
    }
    spec = {name: part for name, part in (manifest.get("spec") or {}).items() if name != "nodeName"}
    return {**manifest, "metadata": {**metadata, "annotations": given}, "spec": spec}
