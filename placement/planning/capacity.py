"""The count of how many more of several kinds fit, as all is or as it would be; nothing is written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.allocations.applications import ClaimQuery
from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult
from placement.allocations.group_rules import placed_together
from placement.allocations.world import (
    NOTHING_DIFFERENT,
    ImaginedForest,
    WorldRequest,
    imagined,
    imagining,
    timeout,
)
from placement.common.manifest import ManifestError
from placement.engine.domain import errors, request_scope
from placement.engine.domain.groups import CandidateQuery
from placement.engine.search.budget import Budget, SearchEnded
from placement.flavors.nova.flavor import FlavorRefused
from placement.flavors.nova.translation import translate_document
from placement.flavors.service import query_of
from placement.planning.room import KindRoom, PodCapacity, QueryCapacity, imagined_cluster
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

    def capacity(self, question: Question) -> dict[str, KindRoom]:
        """Return how many more of each kind fit.

        Raises NotFound for the cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout, Unavailable.
        """
        with imagining(question.world):
            aggregate = None
            if question.cluster is not None:
                with self._database.read() as connection:
                    aggregate = found(connection, question.cluster).aggregate_uuid
            options = SearchOptions(
                default_order=False, cluster=question.cluster, cluster_aggregate=aggregate
            )
            budget = Budget(request_scope.remaining(self._seconds), request_scope.caller_is_gone)
            # What is asked about; None if no kind needs it.
            forest = nodes = None
            if any(kind.pod is None for kind in question.kinds.values()):
                view = self._keeper.current()
                forest = imagined(self._database, view, question.world, aggregate, budget)
            if question.cluster is not None and any(kind.pod is not None for kind in question.kinds.values()):
                cluster, loader = self._cluster_cache.snapshot(question.cluster), self._cluster_cache.loader
                nodes = imagined_cluster(self._database, loader, cluster, question.world, budget)
            rooms = {}
            for name, kind in question.kinds.items():
                # Even without time to count, pods would get sums, which take time, too.
                if request_scope.is_over():
                    raise errors.RequestTimeout("counting")
                try:
                    if kind.pod is not None:
                        if nodes is None or question.cluster is None:
                            raise errors.BadRequest("a pod is for a cluster: cluster is missing")
                        pods = PodCapacity(nodes, kind.pod, budget)
                        room, hosts = pods.room(), list(pods.hosts()) if BY_HOST in question.by else None
                        in_cluster = [replace(room, place=question.cluster)]
                        by_cluster = in_cluster if BY_CLUSTER in question.by else None
                        rooms[name] = KindRoom(room, by_cluster, hosts=hosts, resources=pods.resources)
                    else:
                        query = kind.query or query_of(translate_document(kind.flavor))
                        rooms[name] = self._of_query(forest, query, options, question, budget)
                except errors.BadRequest as error:
                    raise _placed(error, question.place(name)) from None
                except SearchEnded as ended:
                    raise timeout(
                        ended,
                        "The caller went away, so counting was ended.",
                        "counting",
                        f"{question.place(name) or 'query'}: counting took longer than {self._seconds:g} s "
                        "([placement] search_timeout) and was ended.",
                    ) from ended
            return rooms

    def candidates(self, query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> SearchResult:
        """Return where a query would fit. Raises BadRequest naming the world's member, as Candidates.find."""
        with imagining(world):
            view, budget = self._keeper.current(), self._candidates.budget()
            seen, _ = imagined(self._database, view, world, options.cluster_aggregate, budget)
            return self._candidates.find_in(seen, query, options)

    def _of_query(
        self,
        seen: ImaginedForest | None,
        query: CandidateQuery,
        options: SearchOptions,
        question: Question,
        budget: Budget,
    ) -> KindRoom:
        assert seen is not None
        view, like = seen
        # All kinds of a question share the time of one search.
        wanted = [replace(each, budget=budget) for each in self._candidates.wanted(view, query, options)]
        claimed = ClaimQuery(query, replace(options, default_order=True))

        def place(count: int) -> int:
            try:
                return placed_together(self._candidates, view, claimed, count, budget.half())
            except errors.SearchTimeout:
                return 0
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                return 0

        counted = QueryCapacity(view, wanted, place)
        # The aggregates to sum by: the ones of clusters by cluster name, others by uuid.
        groups: dict[str, dict[str, int]] = {
            kind: {} for kind in (BY_CLUSTER, BY_AGGREGATE) if kind in question.by
        }
        names: dict[str, str | None] = {}
        if groups:
            present = counted.aggregates()
            with self._database.read() as connection:
                known = clusters.aggregates_called(connection)
            for each in sorted(known, key=lambda each: each.cluster or each.uuid):
                by = BY_AGGREGATE if each.cluster is None else BY_CLUSTER
                if each.id in present and by in groups:
                    groups[by][each.cluster or each.uuid] = each.id
                    names[each.uuid] = each.name
        sums = {kind: counted.by_aggregate(ids) for kind, ids in groups.items()}
        if BY_AGGREGATE in sums:
            sums[BY_AGGREGATE] = [replace(each, name=names[each.place]) for each in sums[BY_AGGREGATE]]
        hosts = None
        if BY_HOST in question.by:
            with self._database.read() as connection:
                called = providers.root_names(connection)
            hosts = list(counted.hosts(called, like))
        return KindRoom(counted.room(), sums.get(BY_CLUSTER), sums.get(BY_AGGREGATE), hosts)


def _placed(error: errors.BadRequest, place: str) -> errors.BadRequest:
    """Return the error with the place of the kind that it is about."""
    if not place:
        return error
    if isinstance(error, FlavorRefused):
        problems = (each._replace(message=f"{place}: {each.message}") for each in error.problems)
        return FlavorRefused(tuple(problems))
    if isinstance(error, ManifestError):
        return ManifestError([f"{place}.pod: {each}" for each in error.findings])
    if isinstance(error, errors.BadValues):
        return errors.BadValues([f"{place}: {each}" for each in error.findings])
    return errors.BadRequest(f"{place}: {error}")


# Kinds that are watched: how many more of them fit, counted beside requests.
#
# A caller gets the last count. If that is old, a thread counts again, so that no caller waits for it.
LOG = logging.getLogger(__name__)
_OLD_SECONDS = 15.0
# A kind that takes longer is left out.
_MOST_SECONDS = 10.0


class Watch:
    """A watch that keeps the rooms of some questions, at most seconds old while callers keep asking."""

    def __init__(self, planning: Planning, questions: Sequence[Question]) -> None:
        self._planning = planning
        self._questions = questions
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
                try:
                    with request_scope.within(_MOST_SECONDS):
                        counted |= self._planning.capacity(question)
                except errors.PlacementError as error:
                    LOG.warning("%s is left out of /metrics: %s", ", ".join(question.kinds), error)
                except Exception:
                    LOG.exception("%s is left out of /metrics", ", ".join(question.kinds))
            self._counted = counted
        finally:
            self._since = time.monotonic()
            self._counting.release()
