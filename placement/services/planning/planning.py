"""How many more of several kinds there is room for, as all is or as it would be; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placement.dialects.nova import FlavorRefused
from placement.domain import deadline
from placement.domain.errors import BadRequest, RequestTimeout, SearchTimeout, Unavailable
from placement.domain.groups import CandidateQuery
from placement.kubernetes.errors import ManifestError
from placement.search.budget import Budget, SearchEnded
from placement.services.clusters.cluster_lookup import found
from placement.services.flavors import Flavors, ParseQuery, query_of
from placement.services.following.cluster_cache import ClusterCache
from placement.services.following.forest_keeper import ForestKeeper
from placement.services.placement.candidates import Candidates, Search
from placement.services.placement.search_options import SearchOptions
from placement.services.planning.answer import KindRoom
from placement.services.planning.by_pod import PodCapacity
from placement.services.planning.by_query import QueryCapacity
from placement.services.planning.pod_world import ImaginedCluster, imagined_cluster
from placement.services.planning.world import NOTHING_DIFFERENT, Imagined, WorldRequest, imagined, imagining
from placement.storage.database import Database
from placement.storage.statements import clusters, provider_rows

BY_CLUSTER, BY_AGGREGATE, BY_HOST = "cluster", "aggregate", "host"
BY = (BY_CLUSTER, BY_AGGREGATE, BY_HOST)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is counted: a query, a flavor (a translation request) or a pod (a manifest), one of these."""

    query: CandidateQuery | None = None
    flavor: Mapping[str, Any] | None = None
    pod: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Kinds by name, counted in one cluster or everywhere, and summed `by` what.

    Pods need a cluster. `place` says where a kind is in what the caller sent.
    """

    kinds: Mapping[str, Kind]
    cluster: str | None = None
    by: Collection[str] = (BY_CLUSTER,)
    world: WorldRequest = NOTHING_DIFFERENT
    place: Callable[[str], str] = field(default=lambda name: f"kinds[{name!r}]")


class Planning:
    """Answers what there is room for."""

    def __init__(
        self,
        database: Database,
        keeper: ForestKeeper,
        cluster_cache: ClusterCache,
        candidates: Candidates,
        seconds: float,
    ) -> None:
        self._database = database
        self._keeper = keeper
        self._cluster_cache = cluster_cache
        self._candidates = candidates
        self._seconds = seconds

    def capacity(self, question: Question, parse: ParseQuery) -> dict[str, KindRoom]:
        """How many more of each kind; `parse` reads the query string of a flavor.

        Raises NotFound for the cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout, Unavailable.
        """
        with imagining(question.world):
            return self._capacity(question, parse)

    def _capacity(self, question: Question, parse: ParseQuery) -> dict[str, KindRoom]:
        aggregate = self._cluster_aggregate(question.cluster)
        options = SearchOptions(default_order=False, cluster=question.cluster, cluster_aggregate=aggregate)
        budget = Budget(deadline.remaining(self._seconds), deadline.caller_is_gone)
        seen = self._seen(question, aggregate, budget)
        nodes = self._nodes_seen(question, budget)
        rooms = {}
        for name, kind in question.kinds.items():
            # Pods that there is no time to count get sums, which take time, too.
            if deadline.is_over():
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

    def candidates(self, query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> Search:
        """Where a query would fit. Raises BadRequest naming the member of the world, as Candidates.find."""
        with imagining(world):
            view, budget = self._keeper.current(), self._candidates.budget()
            seen = imagined(self._database, view, world, options.cluster_aggregate, budget)
            return self._candidates.find_in(seen.view, query, options)

    def _cluster_aggregate(self, cluster: str | None) -> str | None:
        if cluster is None:
            return None
        with self._database.read() as connection:
            return found(connection, cluster).aggregate_uuid

    def _seen(self, question: Question, aggregate: str | None, budget: Budget) -> Imagined | None:
        """The forest that is asked about, None if only pods are."""
        if all(kind.pod is not None for kind in question.kinds.values()):
            return None
        view = self._keeper.current()
        if question.world == NOTHING_DIFFERENT:
            return Imagined(view, {})
        return imagined(self._database, view, question.world, aggregate, budget)

    def _of_query(
        self,
        seen: Imagined | None,
        query: CandidateQuery,
        options: SearchOptions,
        question: Question,
        budget: Budget,
    ) -> KindRoom:
        assert seen is not None
        # All kinds of a question share the time of one search.
        wanted = [replace(each, budget=budget) for each in self._candidates.wanted(seen.view, query, options)]
        counted = QueryCapacity(seen.view, wanted)
        groups = self._groups(counted, question)
        sums = {kind: counted.by_aggregate(ids) for kind, ids in groups.items()}
        hosts = None
        if BY_HOST in question.by:
            with self._database.read() as connection:
                called = provider_rows.root_names(connection)
            hosts = list(counted.hosts(called, seen.like))
        return KindRoom(counted.room(), sums.get(BY_CLUSTER), sums.get(BY_AGGREGATE), hosts)

    def _groups(self, counted: QueryCapacity, question: Question) -> dict[str, dict[str, int]]:
        """The aggregates to sum by: those of clusters by their names, others by uuid."""
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
        """The nodes that are asked about, None if no pods or no cluster are."""
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
        by_cluster = {question.cluster: room} if BY_CLUSTER in question.by else None
        hosts = list(counted.hosts()) if BY_HOST in question.by else None
        return KindRoom(room, by_cluster, hosts=hosts)

    def _timeout(self, place: str, ended: SearchEnded) -> Unavailable:
        if ended.abandoned:
            return SearchTimeout("The caller went away, so counting was ended.")
        if deadline.is_over():
            return RequestTimeout("counting")
        return SearchTimeout(
            f"{place or 'query'}: counting took longer than {self._seconds:g} s ([placement] search_timeout) "
            "and was ended."
        )


def _placed(error: BadRequest, place: str) -> BadRequest:
    """The error with the place of the kind that it is about."""
    if not place:
        return error
    if isinstance(error, FlavorRefused):
        problems = (each._replace(message=f"{place}: {each.message}") for each in error.problems)
        return FlavorRefused(tuple(problems))
    if isinstance(error, ManifestError):
        return ManifestError([f"{place}.pod: {each}" for each in error.findings])
    return BadRequest(f"{place}: {error}")
