"""The search as a use case: names to ids, the search on the caught-up forest, the answer for rendering."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from placement.allocations.kubernetes_resources import is_for_pods, node_class_of
from placement.allocations.orders import candidates_order, order_of, order_remarks
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, RequestTimeout, SearchTimeout, Unavailable
from placement.engine.domain.explanation import MOST_MISSES, Explanation, first_obstacle
from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.inventories import NUMA_ROOT
from placement.engine.forest.arrays import Mask
from placement.engine.scoring.order import Order
from placement.engine.search.answer import Answer, JointAnswer
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.explanation import explain
from placement.engine.search.query import (
    ForestOrder,
    ForestQuery,
    IsCoreTree,
    IsIn,
    OffersClass,
    Preference,
    Trace,
    Vocabulary,
    slots_of,
)
from placement.engine.search.search import FoundCandidates, search, shuffled, trace_of_nothing
from placement.metrics.catalog import CANDIDATES, SEARCHES, STAGE_SECONDS
from placement.providers import view as scoping
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import Cluster
from placement.providers.statements.names import SHARING_TRAIT, Names
from placement.providers.view import (
    ForestKeeper,
    View,
    aggregate_ids,
    aggregate_sets,
    aggregates_of,
    resolve_group,
    trait_set,
)
from placement.storage.database import Database

# The options of our own search beyond the Placement grammar.


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


# Names in the JSON body of a search that do not exist, refused by their place.


class _Mention(NamedTuple):
    place: str
    what: str
    names: Collection[str]
    known: Collection[str]


def refuse_unknown_names(known: Names, query: CandidateQuery) -> None:
    """Raise BadRequest naming the first place in the body with classes or traits that do not exist.

    Source: placement-api.md, "Candidates by JSON".
    """
    for mention in _mentions(known, query):
        unknown = sorted(name for name in mention.names if name not in mention.known)
        if unknown:
            raise BadRequest(f"{mention.place}: No such {mention.what} {', '.join(unknown)}.")


def _mentions(known: Names, query: CandidateQuery) -> Iterator[_Mention]:
    classes, traits = known.class_ids, known.trait_ids
    for group in query.groups:
        required = frozenset[str]().union(*group.required)
        yield _Mention(query.place(group, "resources"), "resource class", group.resources, classes)
        yield _Mention(query.place(group, "required"), "trait", required, traits)
        yield _Mention(query.place(group, "forbidden"), "trait", group.forbidden, traits)
    yield _Mention("root_required", "trait", query.root_required, traits)
    yield _Mention("root_forbidden", "trait", query.root_forbidden, traits)


LOG = logging.getLogger(__name__)
# The time for the near miss in the log line, where no explanation was asked for.
_SECONDS_FOR_THE_LOG = 0.25
# A group is hard to place if it has at least this share of the dead ends of the hardest group.
_HARD = 0.1
# More than a query string can name. The time of the search does not bound the work that precedes it.
_MOST_GROUPS = 5_000


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of the search: at most `maximum` candidates (None: no bound), and their order.

    `randomize`: a query with a limit gets a random choice of all that were generated, others a random order.
    An order by score stands. `order` counts unless a query says otherwise.
    `seconds`: how long one search with its explanation may take.
    """

    maximum: int | None = 100_000
    depth_first: bool = False
    randomize: bool = False
    order: Order | None = None
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One finished search; its explanation names providers only if it was asked for."""

    answer: Answer
    names: Names
    explanation: Explanation | None = None


class CandidateSearch:
    """A use case that finds where a request fits."""

    def __init__(self, database: Database, keeper: ForestKeeper, settings: SearchSettings) -> None:
        self._database = database
        self._keeper = keeper
        self._settings = settings

    def view(self) -> View:
        """Return what a search would see now. Raises Unavailable."""
        with STAGE_SECONDS.labels("catch_up").time():
            return self._keeper.current()

    def find(self, query: CandidateQuery, options: SearchOptions = NO_OPTIONS) -> SearchResult:
        """Search. Raises BadRequest for unknown names, SearchTimeout, Unavailable."""
        return self.find_in(self.view(), query, options)

    def find_in(
        self, view: View, query: CandidateQuery, options: SearchOptions, among: Mask | None = None
    ) -> SearchResult:
        """Search a view from before; `among`: the rows that may be roots, None for all. Raises as `find`."""
        # After the look, so that an aggregate that is known here has its members in the view.
        aggregates = self._aggregates(view, query, options)
        wanted = self._resolve(view.names, query, options, aggregates)
        if among is not None:
            wanted = replace(wanted, among=among)
        _refuse_shared_splits(view, wanted, query)
        if query.on_core_trees is not None and _has_core_trees(view, wanted):
            found = self._find_jointly(view, query, wanted, options, aggregates)
        else:
            candidates, why = self._search(view, query, wanted, options, aggregates)
            found = SearchResult(Answer(view.forest, candidates), view.names, why)
        count = len(found.answer)
        SEARCHES.labels("found" if count else "empty").inc()
        CANDIDATES.observe(count)
        if found.explanation is not None and not count:
            LOG.info("no candidates: %s", first_obstacle(found.explanation))
        return found

    def budget(self) -> Budget:
        """Return the budget of one search from now on, which ends early if the caller goes away."""
        return Budget(request_scope.remaining(self._settings.seconds), request_scope.caller_is_gone)

    def wanted(self, view: View, query: CandidateQuery, options: SearchOptions) -> tuple[ForestQuery, ...]:
        """Return the query by ids; two if it asks core trees something else, theirs last.

        Raises BadRequest for unknown names.
        """
        aggregates = self._aggregates(view, query, options)
        wanted = self._resolve(view.names, query, options, aggregates)
        _refuse_shared_splits(view, wanted, query)
        if query.on_core_trees is None or not _has_core_trees(view, wanted):
            return (wanted,)
        is_core = _is_core_tree(view)
        on_cores = self._resolve(view.names, query.on_core_trees, options, aggregates)
        others = replace(wanted, tree_kind=replace(is_core, wanted=False))
        return others, replace(on_cores, tree_kind=is_core)

    def is_cut(self, search: SearchResult, query: CandidateQuery) -> bool:
        """Return whether a search may have left out candidates."""
        most = min(query.limit or 2**31, self._settings.maximum or 2**31)
        return len(search.answer) >= most

    def asked_of(self, query: CandidateQuery, uuids: Iterable[str]) -> CandidateQuery:
        """Return what the query asks of the trees of these providers."""
        if query.on_core_trees is None:
            return query
        view = self._keeper.current()
        rows = [row for uuid in uuids if (row := view.forest.row_of_uuid(uuid)) >= 0]
        roots = view.forest.providers.root[rows]
        return query.on_core_trees if _is_core_tree(view).among(view.forest, roots).any() else query

    def _find_jointly(
        self,
        view: View,
        query: CandidateQuery,
        wanted: ForestQuery,
        options: SearchOptions,
        aggregates: Mapping[str, int],
    ) -> SearchResult:
        """Search trees without cores and core trees, and join the answers.

        The explanation is that of the core trees, unless only the others have candidates.
        """
        assert query.on_core_trees is not None
        is_core = _is_core_tree(view)
        others = replace(wanted, tree_kind=replace(is_core, wanted=False))
        on_cores = replace(query.on_core_trees, limit=query.limit)
        resolved = self._resolve(view.names, on_cores, options, aggregates)
        cores = replace(resolved, tree_kind=is_core, among=wanted.among)
        flat, why = self._search(view, query, others, options, aggregates)
        cored, core_why = self._search(view, on_cores, cores, options, aggregates)
        # In the order of `queries_of`.
        answer = JointAnswer(view.forest, (flat, cored), min(wanted.maximum, query.limit or wanted.maximum))
        only_flat = len(flat.candidates) and not len(cored.candidates)
        return SearchResult(answer, view.names, why if only_flat else core_why)

    def _search(
        self,
        view: View,
        query: CandidateQuery,
        wanted: ForestQuery,
        options: SearchOptions,
        aggregates: Mapping[str, int],
    ) -> tuple[FoundCandidates, Explanation | None]:
        called = {id_: _called(uuid, options) for uuid, id_ in aggregates.items()}
        words = Vocabulary(view.names.classes, view.names.traits, called)
        trace = Trace(one_by_one=True) if options.explain else None
        explanation = None
        try:
            found = search(view.forest, view.sharing, wanted, trace, score_cache=view.score_cache)
            if trace is not None:
                explanation = self._with_names(_explained(view, wanted, trace, words, MOST_MISSES))
        except SearchEnded as ended:
            SEARCHES.labels("abandoned" if ended.abandoned else "timeout").inc()
            raise self._timeout(wanted, ended) from ended
        for stage, seconds in wanted.budget.stage_seconds.items():
            STAGE_SECONDS.labels(stage).observe(seconds)
        if self._settings.randomize and wanted.order is None:
            found = shuffled(found, query.limit, random.getrandbits(32))
        if trace is None and not len(found.candidates):
            with suppress(SearchEnded):
                brief = replace(wanted, budget=Budget(_SECONDS_FOR_THE_LOG, request_scope.caller_is_gone))
                explanation = _explained(
                    view, brief, trace_of_nothing(view.forest, view.sharing, brief), words, 1
                )
        return found, explanation

    def _with_names(self, explanation: Explanation) -> Explanation:
        if not explanation.providers:
            return explanation
        with self._database.read() as connection:
            names = providers.names_by_uuid(connection, list(explanation.providers))
        return replace(explanation, names=names)

    def _timeout(self, wanted: ForestQuery, ended: SearchEnded) -> Unavailable:
        if ended.abandoned:
            return SearchTimeout("The caller went away, so the search was ended.")
        if request_scope.is_over() and not wanted.budget.dead_ends:
            # A slow database may leave the search no time, which says nothing about the query.
            return RequestTimeout("the search")
        return SearchTimeout(
            f"The search took longer than {self._settings.seconds:g} s ([placement] search_timeout) and was "
            f"ended. Hard to place: {', '.join(_hardest(wanted))}. Ask for fewer groups at once, or narrow "
            "them by traits, aggregates or in_tree; if fewer candidates are enough, set a limit."
        )

    def _aggregates(self, view: View, query: CandidateQuery, options: SearchOptions) -> Mapping[str, int]:
        """Return the ids of all aggregates that are mentioned."""
        sets = [frozenset(options.aggregates), *query.root_member_of]
        sets += [any_of for group in query.groups for any_of in aggregates_of(group)]
        return scoping.aggregates(view.forest, aggregate_ids(self._database, sets))

    def _resolve(
        self, known: Names, query: CandidateQuery, options: SearchOptions, aggregates: Mapping[str, int]
    ) -> ForestQuery:
        if len(query.groups) > _MOST_GROUPS:
            raise BadRequest(f"{len(query.groups)} groups are more than {_MOST_GROUPS}, too many for a query")
        if query.is_json:
            refuse_unknown_names(known, query)
        order = self._settings.order if options.default_order else options.order
        asked = frozenset(name for group in query.groups for name in group.resources)
        by_score = resolve_order(order, asked, options, known, aggregates)
        # A random choice needs all of the candidates to choose from.
        limit = None if self._settings.randomize and by_score is None else query.limit
        bounds = [bound for bound in (limit, self._settings.maximum) if bound is not None]
        home = () if options.cluster_aggregate is None else (frozenset((options.cluster_aggregate,)),)
        return ForestQuery(
            groups=tuple(resolve_group(known, group, aggregates) for group in query.groups),
            sharing_trait=known.trait_ids[SHARING_TRAIT],
            maximum=max(1, min(bounds)) if bounds else 2**31,
            isolate=query.isolate,
            same_subtree=query.same_subtree,
            root_required=tuple(trait_set(known, [trait]) for trait in sorted(query.root_required)),
            root_forbidden=trait_set(known, query.root_forbidden),
            root_member_of=aggregate_sets(aggregates, (*query.root_member_of, *home)),
            one_provider_per_tree=query.one_provider_per_tree,
            depth_first=self._settings.depth_first,
            order=by_score,
            considered=self._settings.maximum or 2**31,
            budget=self.budget(),
        )

    def options(
        self,
        order_by: object = None,
        cluster: str | None = None,
        preferences: tuple[SoftCondition, ...] = (),
        *,
        explain: bool = False,
    ) -> SearchOptions:
        """Return the options of a request; its order is `order_by`, else the cluster's, else the service's.

        Raises BadRequest naming the parameter.
        """
        found = None if cluster is None else self._cluster(cluster)
        if order_by is not None:
            order, is_given = order_of(order_by, "order_by"), True
        else:
            order, is_given = candidates_order({} if found is None else found.settings, stored=True)
        return SearchOptions(
            order=order,
            default_order=not is_given,
            strict=order_by is not None,
            preferences=preferences,
            cluster=cluster,
            cluster_aggregate=None if found is None else found.aggregate_uuid,
            has_nodes=found is not None and found.nodes > 0,
            explain=explain,
            remarks=() if order_by is None else order_remarks(order_by, "order_by"),
        )

    def _cluster(self, name: str) -> Cluster:
        with self._database.read() as connection:
            found = clusters.find(connection, name)
        if found is None:
            raise BadRequest(f"cluster: No cluster {name} found")
        return found

    def inside_cluster(self, options: SearchOptions, uuids: Collection[str]) -> Collection[str]:
        """Return the providers that belong to the cluster of the options; all if these name no cluster."""
        if options.cluster_aggregate is None or not uuids:
            return uuids
        forest = self._keeper.current().forest
        ids = aggregate_ids(self._database, [frozenset((options.cluster_aggregate,))])
        inside = IsIn((frozenset(ids.values()),))
        rows = {uuid: row for uuid in uuids if (row := forest.row_of_uuid(uuid)) >= 0}
        flags = inside.among(forest, forest.providers.root[list(rows.values())])
        return {uuid for uuid, is_inside in zip(rows, flags.tolist(), strict=True) if is_inside}


def queries_of(query: CandidateQuery) -> tuple[CandidateQuery, ...]:
    """Return the queries by turn of the candidates: of trees without cores first, then of core trees."""
    return (query,) if query.on_core_trees is None else (query, query.on_core_trees)


def _is_core_tree(view: View) -> IsCoreTree:
    classes, traits = view.names.class_ids, view.names.trait_ids
    return IsCoreTree(classes["MEMORY_MB"], classes["PCPU"], traits[NUMA_ROOT])


def _has_core_trees(view: View, wanted: ForestQuery) -> bool:
    """Return whether there are core trees where the query looks."""
    roots = view.forest.providers.root[view.forest.roots]
    roots = roots[IsIn(wanted.root_member_of).among(view.forest, roots)]
    return bool(_is_core_tree(view).among(view.forest, roots).any())


def _explained(view: View, wanted: ForestQuery, trace: Trace, words: Vocabulary, most: int) -> Explanation:
    sharing = view.sharing.of(view.forest, wanted.sharing_trait)
    return explain(view.forest, sharing, wanted, trace, words, most)


def _hardest(wanted: ForestQuery) -> list[str]:
    """Return the names of the groups that found no place most often; of all groups if none stood out."""
    dead_ends = wanted.budget.dead_ends
    most = max(dead_ends.values(), default=0)
    suffixes = [
        slot.suffix for number, slot in enumerate(slots_of(wanted)) if dead_ends[number] >= _HARD * most
    ]
    return [f"group {suffix}" if suffix else "the unsuffixed group" for suffix in dict.fromkeys(suffixes)]


def _called(aggregate: str, options: SearchOptions) -> str:
    """Return the name of an aggregate in explanations."""
    return f"of cluster {options.cluster}" if aggregate == options.cluster_aggregate else aggregate


def _refuse_shared_splits(view: View, wanted: ForestQuery, query: CandidateQuery) -> None:
    """Raise BadRequest if only sharing providers offer a split class, unless `same_subtree` names its group.

    Source: placement-api.md, "Split amounts".
    """
    named = frozenset().union(*query.same_subtree)
    for group, resolved in zip(query.groups, wanted.groups, strict=True):
        if not group.is_split or group.suffix in named:
            continue
        sharers = view.sharing.of(view.forest, wanted.sharing_trait).mask(view.forest.count)
        for class_id in resolved.split:
            offering = OffersClass(class_id).everywhere(view.forest)
            if len(offering) and sharers[offering].all():
                where, name = query.place(group, "split"), view.names.classes[class_id]
                raise BadRequest(
                    f"{where}: only sharing providers offer {name}, and no amount is split over these; "
                    "ask for it without split"
                )
