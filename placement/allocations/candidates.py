"""The search as a use case: names to ids, the search on the caught-up forest, the answer for rendering."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
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
from placement.engine.scoring.order import Order, Scope
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
from placement.http import context
from placement.metrics.catalog import CANDIDATES, SEARCHES, STAGE_SECONDS
from placement.providers import view as scoping
from placement.providers.statements import clusters, providers
from placement.providers.statements.names import SHARING_TRAIT, Names
from placement.providers.view import (
    NO_AGGREGATE,
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
    listed = {name for strategy in order.strategies for name, _ in strategy.resources}
    unknown = sorted(listed - known.class_ids.keys())
    if unknown and options.strict:
        raise BadRequest(f"order_by: No such resource class {', '.join(unknown)}.")
    if is_for_pods(asked, has_nodes=options.has_nodes):
        order = order.with_names(node_class_of, stored=True, scopes=(Scope.TREE,))
        listed = {name for strategy in order.strategies for name, _ in strategy.resources}
    preferences = []
    for soft in options.preferences:
        traits, members = frozenset[int](), frozenset[int]()
        if soft.trait is not None:
            if soft.trait not in known.trait_ids:
                raise BadRequest(f"prefer: No such trait {soft.trait}.")
            traits = frozenset((known.trait_ids[soft.trait],))
        elif soft.aggregate is not None and soft.aggregate in aggregates:
            members = frozenset((aggregates[soft.aggregate],))
        preferences.append(Preference(soft.weight, traits=traits, aggregates=members, absent=soft.absent))
    return ForestOrder(
        order,
        {name: known.class_ids[name] for name in sorted(listed) if name in known.class_ids},
        tuple(preferences),
    )


def refuse_unknown_names(known: Names, query: CandidateQuery) -> None:
    """Raise BadRequest naming the first place in a query with classes or traits that do not exist.

    Source: placement-api.md, "Candidates by JSON".
    """
    mentions: list[tuple[str, Collection[str], bool]] = []
    for group in query.groups:
        required = frozenset[str]().union(*group.required)
        mentions += [
            (query.place(group, "resources"), group.resources, True),
            (query.place(group, "required"), required, False),
            (query.place(group, "forbidden" if query.is_json else "required"), group.forbidden, False),
        ]
    mentions += [
        ("root_required", query.root_required, False),
        ("root_forbidden" if query.is_json else "root_required", query.root_forbidden, False),
    ]
    for place, names, is_class in mentions:
        ids = known.class_ids if is_class else known.trait_ids
        unknown = sorted(name for name in names if name not in ids)
        if unknown:
            what = "resource class" if is_class else "trait"
            raise BadRequest(f"{place}: No such {what} {', '.join(unknown)}.")


def _aggregates_in(query: CandidateQuery, options: SearchOptions) -> list[frozenset[str]]:
    """Return the sets of aggregates that are mentioned."""
    mentioned = [options.cluster_aggregate, *(soft.aggregate for soft in options.preferences)]
    sets = [frozenset(uuid for uuid in mentioned if uuid is not None), *query.root_member_of]
    return sets + [any_of for group in query.groups for any_of in aggregates_of(group)]


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

    def uses(self, roots: Sequence[str], classes: Collection[str]) -> dict[str, dict[str, tuple[int, int]]]:
        """Return capacity and use by class, as searched, of the trees with these roots (uuids)."""
        ids = {self.names.class_ids[name]: name for name in classes}
        found = self.answer.tree_uses(roots, ids).items()
        return {root: {ids[of]: use for of, use in by_class.items()} for root, by_class in found}


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
        wanted = self.wanted(view, query, options, aggregates)
        if among is not None:
            wanted = tuple(replace(each, among=among) for each in wanted)
        (candidates, why), *on_cores = (
            self._search(view, query, each, options, aggregates) for each in wanted
        )
        answer = Answer(view.forest, candidates)
        for cored, core_why in on_cores:
            # In the order of `queries_of`.
            most = min(wanted[0].maximum, query.limit or wanted[0].maximum)
            answer = JointAnswer(view.forest, (candidates, cored), most)
            # The explanation is that of the core trees, unless only the others have candidates.
            if not len(candidates.candidates) or len(cored.candidates):
                why = core_why
        found = SearchResult(answer, view.names, why)
        count = len(found.answer)
        SEARCHES.labels("found" if count else "empty").inc()
        CANDIDATES.observe(count)
        if found.explanation is not None and not count:
            LOG.info("no candidates: %s", first_obstacle(found.explanation))
        return found

    def budget(self) -> Budget:
        """Return the budget of one search from now on, which ends early if the caller goes away."""
        return Budget(request_scope.remaining(self._settings.seconds), request_scope.caller_is_gone)

    def wanted(
        self,
        view: View,
        query: CandidateQuery,
        options: SearchOptions,
        aggregates: Mapping[str, int] | None = None,
    ) -> tuple[ForestQuery, ...]:
        """Return the query by ids; two if it asks core trees something else, theirs last.

        `aggregates`: the ids of all that are mentioned, if known. Raises BadRequest for unknown names.
        """
        if aggregates is None:
            aggregates = self._aggregates(view, query, options)
        wanted = self._resolve(view.names, query, options, aggregates)
        _refuse_shared_splits(view, wanted, query)
        if query.on_core_trees is None:
            return (wanted,)
        is_core, forest = _is_core_tree(view), view.forest
        roots = forest.providers.root[forest.roots]
        roots = roots[IsIn(wanted.root_member_of).among(forest, roots)]
        if not is_core.among(forest, roots).any():
            # There are no core trees where the query looks.
            return (wanted,)
        on_cores = replace(query.on_core_trees, limit=query.limit)
        cores = self._resolve(view.names, on_cores, options, aggregates)
        others = replace(wanted, tree_kind=replace(is_core, wanted=False))
        return others, replace(cores, tree_kind=is_core)

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

    def _search(
        self,
        view: View,
        query: CandidateQuery,
        wanted: ForestQuery,
        options: SearchOptions,
        aggregates: Mapping[str, int],
    ) -> tuple[FoundCandidates, Explanation | None]:

        def explained(asked: ForestQuery, trace: Trace, most: int) -> Explanation:
            called = {
                id_: f"of cluster {options.cluster}" if uuid == options.cluster_aggregate else uuid
                for uuid, id_ in aggregates.items()
            }
            empty = sorted(frozenset().union(*_aggregates_in(query, options)) - aggregates.keys())
            # All of these are one to the search.
            called[NO_AGGREGATE] = (
                f"{empty[0]} (no provider is in it)" if len(empty) == 1 else "that no provider is in"
            )
            words = Vocabulary(view.names.classes, view.names.traits, called)
            sharing = view.sharing.of(view.forest, asked.sharing_trait)
            return explain(view.forest, sharing, asked, trace, words, most)

        trace = Trace(one_by_one=True) if options.explain else None
        explanation = None
        try:
            found = search(view.forest, view.sharing, wanted, trace, score_cache=view.score_cache)
            if trace is not None:
                explanation = explained(wanted, trace, MOST_MISSES)
        except SearchEnded as ended:
            SEARCHES.labels("abandoned" if ended.abandoned else "timeout").inc()
            raise self._timeout(wanted, ended) from ended
        if explanation is not None:
            explanation = replace(explanation, names=self._called(explanation))
        for stage, seconds in wanted.budget.stage_seconds.items():
            STAGE_SECONDS.labels(stage).observe(seconds)
        if self._settings.randomize and wanted.order is None:
            found = shuffled(found, query.limit, random.getrandbits(32))
        if trace is None and not len(found.candidates):
            with suppress(SearchEnded):
                brief = replace(wanted, budget=Budget(_SECONDS_FOR_THE_LOG, request_scope.caller_is_gone))
                explanation = explained(brief, trace_of_nothing(view.forest, view.sharing, brief), 1)
        return found, explanation

    def _called(self, explanation: Explanation) -> Mapping[str, str]:
        """Return the names by uuid of the providers that are mentioned."""
        if not explanation.providers:
            return {}
        with self._database.read() as connection:
            return providers.names_by_uuid(connection, list(explanation.providers))

    def reason_of(self, search: SearchResult) -> str:
        """Return why a search found nothing, with names and uuids of providers."""
        if search.explanation is None:
            return "nothing fits"
        names = {uuid: f"{name} ({uuid})" for uuid, name in self._called(search.explanation).items()}
        return first_obstacle(replace(search.explanation, names=names))

    def _timeout(self, wanted: ForestQuery, ended: SearchEnded) -> Unavailable:
        if ended.abandoned:
            return SearchTimeout("The caller went away, so the search was ended.")
        if request_scope.is_over() and not wanted.budget.dead_ends:
            # A slow database may leave the search no time, which says nothing about the query.
            return RequestTimeout("the search")
        # The groups that found no place most often; all groups if none stood out.
        dead_ends = wanted.budget.dead_ends
        hard = _HARD * max(dead_ends.values(), default=0)
        slots = enumerate(slots_of(wanted))
        hardest = dict.fromkeys(slot.suffix for number, slot in slots if dead_ends[number] >= hard)
        called = [f"group {suffix}" if suffix else "the unsuffixed group" for suffix in hardest]
        return SearchTimeout(
            f"The search took longer than {self._settings.seconds:g} s ([placement] search_timeout) and was "
            f"ended. Hard to place: {', '.join(called)}. Ask for fewer groups at once, or narrow "
            "them by traits, aggregates or in_tree; if fewer candidates are enough, set a limit."
        )

    def _aggregates(self, view: View, query: CandidateQuery, options: SearchOptions) -> Mapping[str, int]:
        """Return the ids of all aggregates that are mentioned."""
        ids = aggregate_ids(self._database, _aggregates_in(query, options))
        return scoping.aggregates(view.forest, ids)

    def _resolve(
        self, known: Names, query: CandidateQuery, options: SearchOptions, aggregates: Mapping[str, int]
    ) -> ForestQuery:
        if len(query.groups) > _MOST_GROUPS:
            raise BadRequest(f"{len(query.groups)} groups are more than {_MOST_GROUPS}, too many for a query")
        if query.is_json or context.is_own():
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
        found = None
        if cluster is not None:
            with self._database.read() as connection:
                found = clusters.find(connection, cluster)
            if found is None:
                raise BadRequest(f"cluster: No cluster {cluster} found")
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
