"""The count of how many more of several kinds fit, as all is or as it would be; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from placement.allocations.applications import ClaimQuery
from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.group_rules import placed_together
from placement.allocations.query_names import with_uuids
from placement.allocations.world import (
    NOTHING_DIFFERENT,
    ImaginedForest,
    WorldRequest,
    imagined,
    imagining,
    timeout,
)
from placement.engine.domain import errors, request_scope
from placement.engine.domain.errors import BODY, RequestPlace
from placement.engine.domain.groups import CandidateQuery
from placement.engine.search.budget import Budget, SearchEnded
from placement.flavors.service import query_in_aggregates
from placement.planning.counts import CapacityCount, KindCapacity
from placement.planning.imagined_clusters import ImaginedCluster, imagined_cluster, with_all_open
from placement.planning.pod_capacity import PodCapacity
from placement.planning.query_capacity import QueryCapacity
from placement.pods.store.cache import ClusterCache
from placement.providers.called import CalledUuids
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import found
from placement.providers.view import ForestKeeper
from placement.storage.database import Database

BY_CLUSTER, BY_AGGREGATE, BY_HOST = "cluster", "aggregate", "host"
BY = (BY_CLUSTER, BY_AGGREGATE, BY_HOST)


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind that is counted: one of a query, a flavor (a translation request) and a pod (a manifest)."""

    query: CandidateQuery | None = None
    flavor: Mapping[str, Any] | None = None
    pod: Mapping[str, Any] | None = None

    @property
    def part(self) -> str:
        """The member of a body that has it; a flavor's parts have members of their own."""
        if self.pod is not None:
            return "pod"
        if self.query is None:
            return ""
        return "query" if self.query.is_json else "querystring"

    def query_with_uuids(self, called: CalledUuids, cluster: str | None = None) -> CandidateQuery:
        """Return the query of the kind, which is not for a pod. Raises BadRequest for unknown names."""
        if self.query is None:
            assert self.flavor is not None
            return query_in_aggregates(self.flavor, called, cluster)
        return with_uuids(self.query, called, cluster)

    def within(self, error: errors.BadRequest, place: RequestPlace) -> errors.BadRequest:
        """Return an error about the kind at a place of a body."""
        return error.within(place / self.part if self.part else place)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about kinds by name, counted in one cluster or everywhere, and summed as `by` says.

    Pods need a cluster. `closed`: closed hosts count as well. `place` returns the place of a kind in the body
    of the caller.
    """

    kinds: Mapping[str, RequestKind]
    cluster: str | None = None
    by: Collection[str] = (BY_CLUSTER,)
    world: WorldRequest = NOTHING_DIFFERENT
    closed: bool = False
    place: Callable[[str], RequestPlace] = field(default=(BODY / "kinds").entry)


class _CountedHosts(NamedTuple):
    """The hosts to count on, in one cluster or everywhere; each part is None if no kind needs it."""

    forest: ImaginedForest | None
    cluster: ImaginedCluster | None


@dataclass(frozen=True, slots=True)
class Planning:
    """The service that counts how many more requests fit."""

    for_bound_callers = True

    _database: Database
    _keeper: ForestKeeper
    _cluster_cache: ClusterCache
    _candidates: CandidateSearch
    _seconds: float

    def capacity(self, question: Question) -> dict[str, KindCapacity]:
        """Return how many more of each kind fit.

        Raises NotFound for the cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout, Unavailable.
        """
        with imagining(question.world):
            options = self._options(question)
            budget = Budget(request_scope.remaining(self._seconds), request_scope.caller_is_gone)
            hosts = self._hosts(question, options, budget)
            counts = {}
            for name, kind in question.kinds.items():
                # Even without time to count, pods would get sums, which take time, too.
                if request_scope.is_over():
                    raise errors.RequestTimeout("counting")
                try:
                    if kind.pod is not None:
                        counts[name] = _count_of_pod(hosts.cluster, kind.pod, question, budget)
                    else:
                        query = kind.query_with_uuids(self._candidates.called, options.cluster)
                        counts[name] = self._count_of_query(hosts.forest, query, options, question, budget)
                except errors.BadRequest as error:
                    place = question.place(name)
                    raise error if place == BODY else kind.within(error, place) from None
                except SearchEnded as ended:
                    raise timeout(
                        ended,
                        "The caller went away, so counting was ended.",
                        "counting",
                        f"{question.place(name).text or 'query'}: counting took longer than "
                        f"{self._seconds:g} s ([placement] search_timeout) and was ended.",
                    ) from ended
            return counts

    def _options(self, question: Question) -> SearchOptions:
        """Return the options of searches in a cluster or everywhere. Raises NotFound."""
        cluster, aggregate = question.cluster, None
        if cluster is not None:
            with self._database.read() as connection:
                aggregate = found(connection, cluster).aggregate_uuid
        return SearchOptions(
            default_order=False,
            cluster=cluster,
            cluster_aggregate=aggregate,
            open_only=not question.closed,
        )

    def _hosts(self, question: Question, options: SearchOptions, budget: Budget) -> _CountedHosts:
        """Return the hosts that the kinds of a question are counted on."""
        forest = cluster = None
        are_pods = [kind.pod is not None for kind in question.kinds.values()]
        if not all(are_pods):
            view, aggregate = self._keeper.current(), options.cluster_aggregate
            forest = imagined(self._database, view, question.world, aggregate, budget)
        if question.cluster is not None and any(are_pods):
            snapshot, loader = self._cluster_cache.snapshot(question.cluster), self._cluster_cache.loader
            if question.closed:
                snapshot = with_all_open(snapshot)
            cluster = imagined_cluster(self._database, loader, snapshot, question.world, budget)
        return _CountedHosts(forest, cluster)

    def _count_of_query(
        self,
        forest: ImaginedForest | None,
        query: CandidateQuery,
        options: SearchOptions,
        question: Question,
        budget: Budget,
    ) -> KindCapacity:
        assert forest is not None
        view, like = forest
        # All kinds of a question share the time of one search.
        wanted = [replace(each, budget=budget) for each in self._candidates.wanted(view, query, options)]
        claim_query = ClaimQuery(query, replace(options, default_order=True))

        def place(count: int) -> int:
            try:
                return placed_together(self._candidates, view, claim_query, count, budget.half())
            except errors.SearchTimeout:
                return 0
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                return 0

        capacity = QueryCapacity(view, wanted, place)
        sums = self._sums(capacity, question.by)
        hosts = None
        if BY_HOST in question.by:
            with self._database.read() as connection:
                called = providers.root_names(connection)
            hosts = list(capacity.hosts(called, like))
        return KindCapacity(capacity.total(), sums.get(BY_CLUSTER), sums.get(BY_AGGREGATE), hosts)

    def _sums(self, capacity: QueryCapacity, by: Collection[str]) -> dict[str, list[CapacityCount]]:
        """Return the counts by cluster and by aggregate, as far as these are in `by`."""
        # The aggregates to sum by: the ones of clusters by cluster name, others by uuid.
        groups: dict[str, dict[str, int]] = {kind: {} for kind in (BY_CLUSTER, BY_AGGREGATE) if kind in by}
        if not groups:
            return {}
        present = capacity.aggregates()
        with self._database.read() as connection:
            aggregates = clusters.aggregates_called(connection)
        names: dict[str, str | None] = {}
        for each in sorted(aggregates, key=lambda each: each.cluster or each.uuid):
            kind = BY_AGGREGATE if each.cluster is None else BY_CLUSTER
            if each.id in present and kind in groups:
                groups[kind][each.cluster or each.uuid] = each.id
                names[each.uuid] = each.name
        sums = {kind: capacity.by_aggregate(ids) for kind, ids in groups.items()}
        if BY_AGGREGATE in sums:
            sums[BY_AGGREGATE] = [replace(each, name=names[each.place]) for each in sums[BY_AGGREGATE]]
        return sums


def _count_of_pod(
    cluster: ImaginedCluster | None, manifest: Mapping[str, Any], question: Question, budget: Budget
) -> KindCapacity:
    if cluster is None or question.cluster is None:
        raise errors.BadRequest("a pod is for a cluster: cluster is missing")
    capacity = PodCapacity(cluster, manifest, budget)
    total, hosts = capacity.total(), list(capacity.hosts()) if BY_HOST in question.by else None
    by_cluster = [replace(total, place=question.cluster)] if BY_CLUSTER in question.by else None
    return KindCapacity(total, by_cluster, hosts=hosts, resources=capacity.resources)
