"""The count of how many more of several kinds fit, as all is or as it would be; nothing is written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult
from placement.allocations.group_rules import placed_together
from placement.allocations.shortlists import ClaimQuery
from placement.allocations.world import NOTHING_DIFFERENT, ImaginedForest, WorldRequest, imagined, imagining
from placement.common.manifest import ManifestError
from placement.engine.domain import request_scope
from placement.engine.domain.errors import (
    BadRequest,
    PlacementError,
    RequestTimeout,
    SearchTimeout,
    Unavailable,
)
from placement.engine.domain.groups import CandidateQuery
from placement.engine.search.budget import Budget, SearchEnded
from placement.flavors.nova import FlavorRefused
from placement.flavors.service import Flavors, ParseQuery, query_of
from placement.planning.pod_capacity import ImaginedCluster, PodCapacity, imagined_cluster
from placement.planning.room import KindRoom, QueryCapacity
from placement.pods.cache import ClusterCache
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


@dataclass(frozen=True, slots=True)
class Question:
    """A question about kinds by name, counted in one cluster or everywhere, and summed as `by` says.

    Pods need a cluster. `place` says where a kind is in what the caller sent.
    """

    kinds: Mapping[str, RequestKind]
    cluster: str | None = None
    by: Collection[str] = (BY_CLUSTER,)
    world: WorldRequest = NOTHING_DIFFERENT
    place: Callable[[str], str] = field(default=lambda name: f"kinds[{name!r}]")


@dataclass(frozen=True, slots=True)
class Planning:
    """A service that answers what there is room for."""

    _database: Database
    _keeper: ForestKeeper
    _cluster_cache: ClusterCache
    _candidates: CandidateSearch
    _seconds: float

    def capacity(self, question: Question, parse: ParseQuery) -> dict[str, KindRoom]:
        """Return how many more of each kind fit; `parse` reads the query string of a flavor.

        Raises NotFound for the cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout, Unavailable.
        """
        with imagining(question.world):
            return self._capacity(question, parse)

    def _capacity(self, question: Question, parse: ParseQuery) -> dict[str, KindRoom]:
        aggregate = self._cluster_aggregate(question.cluster)
        options = SearchOptions(default_order=False, cluster=question.cluster, cluster_aggregate=aggregate)
        budget = Budget(request_scope.remaining(self._seconds), request_scope.caller_is_gone)
        seen = self._seen(question, aggregate, budget)
        nodes = self._nodes_seen(question, budget)
        rooms = {}
        for name, kind in question.kinds.items():
            # Even without time to count, pods would get sums, which take time, too.
            if request_scope.is_over():
                raise RequestTimeout("counting")
            try:
                if kind.pod is not None:
                    rooms[name] = self._of_pod(nodes, kind.pod, question, budget)
                else:
                    query = kind.query or query_of(Flavors.translate(kind.flavor), parse)
                    rooms[name] = self._of_query(seen, query, options, question, budget)
            except BadRequest as error:
                raise _placed(error, question.place(name)) from None
            except SearchEnded as ended:
                raise self._timeout(question.place(name), ended) from ended
        return rooms

    def candidates(self, query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> SearchResult:
        """Return where a query would fit. Raises BadRequest naming the world's member, as Candidates.find."""
        with imagining(world):
            view, budget = self._keeper.current(), self._candidates.budget()
            seen = imagined(self._database, view, world, options.cluster_aggregate, budget)
            return self._candidates.find_in(seen.view, query, options)

    def _cluster_aggregate(self, cluster: str | None) -> str | None:
        if cluster is None:
            return None
        with self._database.read() as connection:
            return found(connection, cluster).aggregate_uuid

    def _seen(self, question: Question, aggregate: str | None, budget: Budget) -> ImaginedForest | None:
        """Return the forest that is asked about, or None if only pods are."""
        if all(kind.pod is not None for kind in question.kinds.values()):
            return None
        view = self._keeper.current()
        if question.world == NOTHING_DIFFERENT:
            return ImaginedForest(view, {})
        return imagined(self._database, view, question.world, aggregate, budget)

    def _of_query(
        self,
        seen: ImaginedForest | None,
        query: CandidateQuery,
        options: SearchOptions,
        question: Question,
        budget: Budget,
    ) -> KindRoom:
        assert seen is not None
        # All kinds of a question share the time of one search.
        wanted = [replace(each, budget=budget) for each in self._candidates.wanted(seen.view, query, options)]
        claimed = ClaimQuery(query, replace(options, default_order=True))

        def place(count: int) -> int:
            try:
                return placed_together(self._candidates, seen.view, claimed, count, budget.half())
            except SearchTimeout:
                return 0
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                return 0

        counted = QueryCapacity(seen.view, wanted, place)
        groups = self._groups(counted, question)
        sums = {kind: counted.by_aggregate(ids) for kind, ids in groups.items()}
        hosts = None
        if BY_HOST in question.by:
            with self._database.read() as connection:
                called = providers.root_names(connection)
            hosts = list(counted.hosts(called, seen.like))
        return KindRoom(counted.room(), sums.get(BY_CLUSTER), sums.get(BY_AGGREGATE), hosts)

    def _groups(self, counted: QueryCapacity, question: Question) -> dict[str, dict[str, int]]:
        """Return the aggregates to sum by: the ones of clusters by cluster name, others by uuid."""
        groups: dict[str, dict[str, int]] = {
            kind: {} for kind in (BY_CLUSTER, BY_AGGREGATE) if kind in question.by
        }
        if not groups:
            return groups
        present = counted.aggregates()
        with self._database.read() as connection:
            known = clusters.aggregates_called(connection)
        for id_, uuid, cluster in sorted(known, key=lambda each: each[2] or each[1]):
            kind = BY_AGGREGATE if cluster is None else BY_CLUSTER
            if id_ in present and kind in groups:
                groups[kind][cluster or uuid] = id_
        return groups

    def _nodes_seen(self, question: Question, budget: Budget) -> ImaginedCluster | None:
        """Return the nodes that are asked about, or None without pods or without a cluster."""
        if question.cluster is None or all(kind.pod is None for kind in question.kinds.values()):
            return None
        view = self._cluster_cache.view(question.cluster)
        return imagined_cluster(self._database, self._cluster_cache.loader, view, question.world, budget)

    def _of_pod(
        self, nodes: ImaginedCluster | None, pod: Mapping[str, Any], question: Question, budget: Budget
    ) -> KindRoom:
        if nodes is None or question.cluster is None:
            raise BadRequest("a pod is for a cluster: cluster is missing")
        counted = PodCapacity(nodes, pod, budget)
        room = counted.room()
        by_cluster = [replace(room, place=question.cluster)] if BY_CLUSTER in question.by else None
        hosts = list(counted.hosts()) if BY_HOST in question.by else None
        return KindRoom(room, by_cluster, hosts=hosts)

    def _timeout(self, place: str, ended: SearchEnded) -> Unavailable:
        if ended.abandoned:
            return SearchTimeout("The caller went away, so counting was ended.")
        if request_scope.is_over():
            return RequestTimeout("counting")
        return SearchTimeout(
            f"{place or 'query'}: counting took longer than {self._seconds:g} s ([placement] search_timeout) "
            "and was ended."
        )


def _placed(error: BadRequest, place: str) -> BadRequest:
    """Return the error with the place of the kind that it is about."""
    if not place:
        return error
    if isinstance(error, FlavorRefused):
        problems = (each._replace(message=f"{place}: {each.message}") for each in error.problems)
        return FlavorRefused(tuple(problems))
    if isinstance(error, ManifestError):
        return ManifestError([f"{place}.pod: {each}" for each in error.findings])
    return BadRequest(f"{place}: {error}")


# Kinds that are watched: how many more of them fit, counted beside requests.
#
# A caller gets the last count. If that is old, a thread counts again, so that no caller waits for it.


LOG = logging.getLogger(__name__)
_OLD_SECONDS = 15.0
# A kind that takes longer is left out.
_MOST_SECONDS = 10.0


class Watch:
    """A watch that keeps the rooms of some questions, at most seconds old while callers keep asking."""

    def __init__(self, planning: Planning, questions: Sequence[Question], parse: ParseQuery) -> None:
        self._planning = planning
        self._questions = questions
        self._parse = parse
        self._counted: dict[str, KindRoom] = {}
        self._since = -_OLD_SECONDS
        self._counting = threading.Lock()

    def latest(self) -> Mapping[str, KindRoom]:
        """Return the last counts by kind; nothing before the first count."""
        is_old = time.monotonic() - self._since >= _OLD_SECONDS
        if self._questions and is_old and self._counting.acquire(blocking=False):
            threading.Thread(target=self._count_all, name="capacity", daemon=True).start()
        return self._counted

    def _count_all(self) -> None:
        try:
            counted: dict[str, KindRoom] = {}
            for question in self._questions:
                counted |= self._count(question)
            self._counted = counted
        finally:
            self._since = time.monotonic()
            self._counting.release()

    def _count(self, question: Question) -> Mapping[str, KindRoom]:
        try:
            with request_scope.within(_MOST_SECONDS):
                return self._planning.capacity(question, self._parse)
        except PlacementError as error:
            LOG.warning("%s is left out of /metrics: %s", ", ".join(question.kinds), error)
        except Exception:
            LOG.exception("%s is left out of /metrics", ", ".join(question.kinds))
        return {}
