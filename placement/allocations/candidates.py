"""The search as a use case: names to ids, the search on the caught-up forest, the answer for rendering."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from placement.allocations.kubernetes_resources import is_for_pods, node_class_of
from placement.allocations.orders import candidates_order, order_of, order_remarks
from placement.engine.domain import errors, request_scope
from placement.engine.domain.explanation import IN_CLUSTER, MOST_MISSES, Explanation, first_obstacle
from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.tree_specs import NUMA_ROOT
from placement.engine.forest.arrays import Mask
from placement.engine.forest.forest import Forest
from placement.engine.scoring.order import Order, Scope
from placement.engine.search.answer import Answer, JointAnswer
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.conditions import IsIn, OffersClass
from placement.engine.search.explanation import FoundCount, explain
from placement.engine.search.query import (
    ForestOrder,
    ForestQuery,
    IsCoreTree,
    IsOpen,
    Preference,
    slots_of,
)
from placement.engine.search.search import FoundCandidates, search, shuffled
from placement.engine.search.vocabulary import Vocabulary
from placement.metrics.catalog import CANDIDATES, SEARCHES, STAGE_SECONDS
from placement.providers.called import CalledUuids
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
    visible_aggregates,
)
from placement.storage.database import Database


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
    `open_only`: closed hosts are left out.
    `own_words`: unknown names are refused in our words, with their place; else in the incumbent's.
    `is_json`: errors name places in a JSON body.
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
    open_only: bool = False
    own_words: bool = True
    is_json: bool = False

    def place_of(self, name: str) -> errors.RequestPlace:
        """Return where an option stands in the request."""
        return errors.option_place(name, is_json=self.is_json)


NO_OPTIONS = SearchOptions()


def resolve_order(
    order: Order | None,
    asked: Set[str],
    options: SearchOptions,
    known_names: Names,
    aggregates: Mapping[str, int],
) -> ForestOrder | None:
    """Return the order by ids for a request of the `asked` classes, None if nothing is to be ordered.

    Raises BadRequest for unknown names.
    """
    if order is None and not options.preferences:
        return None
    order = order or Order(())
    listed = {name for strategy in order.strategies for name, _ in strategy.resources}
    unknown = sorted(listed - known_names.class_ids.keys())
    if unknown and options.strict:
        raise errors.no_such(errors.NameKind.RESOURCE_CLASS, unknown, options.place_of("order_by"))
    if is_for_pods(asked, has_nodes=options.has_nodes):
        order = order.with_names(node_class_of, stored=True, scopes=(Scope.TREE,))
        listed = {name for strategy in order.strategies for name, _ in strategy.resources}
    return ForestOrder(
        order,
        {name: known_names.class_ids[name] for name in sorted(listed) if name in known_names.class_ids},
        tuple(
            _preference(soft, known_names, aggregates, options.place_of("prefer"))
            for soft in options.preferences
        ),
    )


def _preference(
    soft: SoftCondition, known_names: Names, aggregates: Mapping[str, int], place: errors.RequestPlace
) -> Preference:
    """Return a soft condition by ids. Raises BadRequest for an unknown trait."""
    traits, members = frozenset[int](), frozenset[int]()
    if soft.trait is not None:
        if soft.trait not in known_names.trait_ids:
            raise errors.no_such(errors.NameKind.TRAIT, (soft.trait,), place)
        traits = frozenset((known_names.trait_ids[soft.trait],))
    elif soft.aggregate is not None and soft.aggregate in aggregates:
        members = frozenset((aggregates[soft.aggregate],))
    return Preference(soft.weight, traits=traits, aggregates=members, absent=soft.absent)


def refuse_unknown_names(known_names: Names, query: CandidateQuery) -> None:
    """Raise BadRequest naming the first place in a query with classes or traits that do not exist.

    Source: placement-api.md, "Candidates by JSON".
    """
    class_ids, trait_ids = known_names.class_ids, known_names.trait_ids
    negative = "forbidden" if query.is_json else "required"
    for group in query.groups:
        required = frozenset[str]().union(*group.required)
        for kind, member, names, ids in (
            (errors.NameKind.RESOURCE_CLASS, "resources", group.resources, class_ids),
            (errors.NameKind.TRAIT, "required", required, trait_ids),
            (errors.NameKind.TRAIT, negative, group.forbidden, trait_ids),
        ):
            if not ids.keys() >= set(names):
                raise errors.no_such(kind, set(names) - ids.keys(), query.place(group, member))
    for member, names in (("required", query.root_required), (negative, query.root_forbidden)):
        if not trait_ids.keys() >= names:
            place = query.place_of(f"root_{member}")
            raise errors.no_such(errors.NameKind.TRAIT, names - trait_ids.keys(), place)


def _aggregates_in(query: CandidateQuery, options: SearchOptions) -> list[frozenset[str]]:
    """Return the sets of aggregates that are mentioned."""
    mentioned = [options.cluster_aggregate, *(soft.aggregate for soft in options.preferences)]
    sets = [frozenset(uuid for uuid in mentioned if uuid is not None), *query.root_member_of]
    return sets + [any_of for group in query.groups for any_of in aggregates_of(group)]


LOG = logging.getLogger(__name__)
# Looking a figure up by its labels takes longer than counting.
_searches, _stage_seconds = cache(SEARCHES.labels), cache(STAGE_SECONDS.labels)
# The time for the near miss in the log line, where no explanation was asked for.
_SECONDS_FOR_THE_LOG = 0.25
# A scheduler repeats some queries, and none of these is as large as a query may be.
_MOST_EMPTY, _MOST_KEPT_CONDITIONS = 100, 100
_NO_BUDGET = Budget()
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
    """One finished search; its explanation names providers only if it was asked for.

    `in_full` explains a search that found nothing, on the forest that was searched. Raises SearchEnded.
    """

    answer: Answer
    names: Names
    explanation: Explanation | None = None
    in_full: Callable[[], Explanation] | None = None

    def uses(self, roots: Sequence[str], classes: Collection[str]) -> dict[str, dict[str, tuple[int, int]]]:
        """Return capacity and use by class, as searched, of the trees with these roots (uuids)."""
        ids = {self.names.class_ids[name]: name for name in classes}
        found = self.answer.tree_uses(roots, ids).items()
        return {root: {ids[of]: use for of, use in by_class.items()} for root, by_class in found}


class _Searched(NamedTuple):
    """The candidates of one query, why there are so few, and the way to explain nothing in full."""

    found: FoundCandidates
    explanation: Explanation | None
    in_full: Callable[[], Explanation] | None


class _EmptySearches:
    """Why searches found nothing, in brief, until the forest changes.

    A scheduler asks again and again for what does not fit, and the explanation, of which one log line is
    made, takes as long as the search.
    """

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Forest, tuple[Names, dict[Hashable, Explanation]]] = WeakKeyDictionary()

    def of(
        self,
        view: View,
        query: ForestQuery,
        called: Callable[[], Mapping[int, str]],
        explained: Callable[[], Explanation],
    ) -> Explanation:
        """Return the explanation of an empty search of the view. Raises SearchEnded."""
        asked = sum(len(each.resources) + len(each.required) + len(each.member_of) for each in query.groups)
        if query.among is not None or asked > _MOST_KEPT_CONDITIONS:
            return explained()
        names, known = self._of.get(view.forest, (None, {}))
        if names is not view.names:
            names, known = self._of[view.forest] = view.names, {}
        # What fits nowhere is not ordered.
        case = replace(query, order=None, budget=_NO_BUDGET), frozenset(called().items())
        explanation = known.get(case)
        if explanation is None:
            if len(known) >= _MOST_EMPTY:
                known.clear()
            explanation = known[case] = explained()
        return explanation


class CandidateSearch:
    """A use case that finds where a request fits."""

    for_bound_callers = True

    def __init__(self, database: Database, keeper: ForestKeeper, settings: SearchSettings) -> None:
        self._database = database
        self._keeper = keeper
        self._settings = settings
        self._empty = _EmptySearches()
        self.called = CalledUuids(database, keeper)

    def view(self) -> View:
        """Return the present view of the forest for a search. Raises Unavailable."""
        with _stage_seconds("catch_up").time():
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
        first = self._search(view, query, wanted[0], options, aggregates)
        result = SearchResult(Answer(view.forest, first.found), view.names, first.explanation, first.in_full)
        if len(wanted) > 1:
            on_cores = self._search(view, query, wanted[1], options, aggregates)
            most = min(wanted[0].maximum, query.limit or wanted[0].maximum)
            result = _joined_with_core_trees(view, first, on_cores, most)
        count = len(result.answer)
        _searches("found" if count else "empty").inc()
        CANDIDATES.observe(count)
        if result.explanation is not None and not count:
            LOG.info("no candidates: %s", first_obstacle(result.explanation))
        return result

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
        wanted = self._resolve(view, query, options, aggregates)
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
        cores = self._resolve(view, on_cores, options, aggregates)
        others = replace(wanted, tree_kind=replace(is_core, wanted=False))
        return others, replace(cores, tree_kind=is_core)

    def is_cut(self, search: SearchResult, query: CandidateQuery) -> bool:
        """Return whether a search may have left out candidates."""
        most = min(query.limit or 2**31, self._settings.maximum or 2**31)
        return len(search.answer) >= most

    def asked_of(self, query: CandidateQuery, uuids: Iterable[str]) -> CandidateQuery:
        """Return the query that counts for the trees of these providers."""
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
        forest_query: ForestQuery,
        options: SearchOptions,
        aggregates: Mapping[str, int],
    ) -> _Searched:

        def explained(explained_query: ForestQuery, found: FoundCandidates, *, in_full: bool) -> Explanation:
            vocabulary = Vocabulary(view.names.classes, view.names.traits, called())
            sharing = view.sharing.of(view.forest, explained_query.sharing_trait)
            number = len(found.candidates)
            found_count = FoundCount(number, complete=number < explained_query.maximum)
            most = MOST_MISSES if in_full else 1
            return explain(
                view.forest, sharing, explained_query, found_count, vocabulary, most, in_full=in_full
            )

        def called() -> dict[int, str]:
            return _names_of_aggregates(query, options, aggregates)

        def in_brief(*, in_full: bool) -> Explanation:
            seconds = request_scope.remaining(_SECONDS_FOR_THE_LOG)
            budget = Budget(seconds, request_scope.caller_is_gone)
            return explained(replace(forest_query, budget=budget), found, in_full=in_full)

        explanation = None
        try:
            found = search(view.forest, view.sharing, forest_query, score_cache=view.score_cache)
            if options.explain:
                try:
                    explanation = explained(forest_query, found, in_full=True)
                except SearchEnded as ended:
                    if ended.abandoned:
                        raise
                    # The candidates are there, and took all of the time.
                    explanation = in_brief(in_full=False)
        except SearchEnded as ended:
            _searches("abandoned" if ended.abandoned else "timeout").inc()
            raise self._timeout(forest_query, ended) from ended
        if explanation is not None:
            explanation = self._named(explanation)
        for stage, seconds in forest_query.budget.stage_seconds.items():
            _stage_seconds(stage).observe(seconds)
        if self._settings.randomize and forest_query.order is None:
            found = shuffled(found, query.limit, random.getrandbits(32))
        if options.explain:
            return _Searched(found, explanation, None)
        if not len(found.candidates):
            with suppress(SearchEnded):
                explanation = self._empty.of(view, forest_query, called, partial(in_brief, in_full=False))
        return _Searched(found, explanation, partial(in_brief, in_full=True))

    def _named(self, explanation: Explanation, form: str = "{name}") -> Explanation:
        """Return the explanation with the names of what it mentions; `form` is for names of providers."""
        elsewhere, mentioned = explanation.elsewhere, list(explanation.providers)
        ids = explanation.aggregate_ids.union(each.id for each in (elsewhere.places if elsewhere else ()))
        if not (mentioned or ids):
            return explanation
        with self._database.read() as connection:
            found = providers.names_by_uuid(connection, mentioned) if mentioned else {}
            aggregates = clusters.aggregates_by_id(connection, ids) if ids else {}
        called = {uuid: form.format(name=name, uuid=uuid) for uuid, name in found.items()}
        called |= {each.uuid: each.name for each in aggregates.values() if each.name}
        if elsewhere is not None:
            known = ((place, aggregates[place.id]) for place in elsewhere.places if place.id in aggregates)
            others = (
                place._replace(uuid=each.uuid, name=each.name, is_cluster=each.cluster is not None)
                for place, each in known
            )
            elsewhere = elsewhere._replace(places=tuple(others))
        return replace(explanation, names=called, elsewhere=elsewhere)

    def reason_of(self, search: SearchResult) -> str:
        """Return why a search found nothing, with names and uuids of providers."""
        explanation = search.explanation
        if search.in_full is not None:
            with suppress(SearchEnded):
                explanation = search.in_full()
        if explanation is None:
            return "nothing fits"
        return first_obstacle(self._named(explanation, "{name} ({uuid})"))

    def _timeout(self, forest_query: ForestQuery, ended: SearchEnded) -> errors.Unavailable:
        if ended.abandoned:
            return errors.SearchTimeout("The caller went away, so the search was ended.")
        if request_scope.is_over() and not forest_query.budget.dead_ends:
            # A slow database may leave the search no time, which says nothing about the query.
            return errors.RequestTimeout("the search")
        # The groups that found no place most often; all groups if none stood out.
        dead_ends = forest_query.budget.dead_ends
        hard = _HARD * max(dead_ends.values(), default=0)
        slots = enumerate(slots_of(forest_query))
        hardest = dict.fromkeys(slot.group.suffix for number, slot in slots if dead_ends[number] >= hard)
        called = [f"group {suffix}" if suffix else "the base group" for suffix in hardest]
        return errors.SearchTimeout(
            f"The search took longer than {self._settings.seconds:g} s ([placement] search_timeout) and was "
            f"ended. Hard to place: {', '.join(called)}. Ask for fewer groups at once, or narrow "
            "them by traits, aggregates or in_tree; if fewer candidates are enough, set a limit."
        )

    def _aggregates(self, view: View, query: CandidateQuery, options: SearchOptions) -> Mapping[str, int]:
        """Return the ids of all aggregates that are mentioned."""
        ids = aggregate_ids(self._database, _aggregates_in(query, options))
        return visible_aggregates(view.forest, ids)

    def _resolve(
        self, view: View, query: CandidateQuery, options: SearchOptions, aggregates: Mapping[str, int]
    ) -> ForestQuery:
        known_names = view.names
        if len(query.groups) > _MOST_GROUPS:
            raise errors.BadRequest(
                f"{len(query.groups)} groups are more than {_MOST_GROUPS}, too many for a query"
            )
        if options.own_words:
            refuse_unknown_names(known_names, query)
        order = self._settings.order if options.default_order else options.order
        asked = frozenset(name for group in query.groups for name in group.resources)
        by_score = resolve_order(order, asked, options, known_names, aggregates)
        # A random choice needs all of the candidates to choose from.
        limit = None if self._settings.randomize and by_score is None else query.limit
        bounds = [bound for bound in (limit, self._settings.maximum) if bound is not None]
        # The cluster is the first that an explanation asks for.
        home = () if options.cluster_aggregate is None else (frozenset((options.cluster_aggregate,)),)
        places = aggregate_sets(aggregates, (*home, *query.root_member_of))
        open_hosts = self._keeper.open_hosts(view) if options.open_only else None
        return ForestQuery(
            groups=tuple(resolve_group(known_names, group, aggregates) for group in query.groups),
            sharing_trait=known_names.trait_ids[SHARING_TRAIT],
            maximum=max(1, min(bounds)) if bounds else 2**31,
            isolate=query.isolate,
            same_subtree=query.same_subtree,
            root_required=tuple(trait_set(known_names, [trait]) for trait in sorted(query.root_required)),
            root_forbidden=trait_set(known_names, query.root_forbidden),
            root_member_of=places,
            open_hosts=_open_among(view, places, open_hosts),
            open_elsewhere=open_hosts,
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
        closed: bool = False,
        is_json: bool = False,
    ) -> SearchOptions:
        """Return the options of a request; its order is `order_by`, else the cluster's, else the service's.

        `closed`: closed hosts count as well. `is_json`: they come from a body. Raises BadRequest naming the
        parameter or member.
        """
        found, place_of = None, partial(errors.option_place, is_json=is_json)
        if cluster is not None:
            with self._database.read() as connection:
                found = clusters.find(connection, cluster)
                words = "" if found else clusters.none_found(connection, cluster)
            if found is None:
                raise errors.BadRequest(
                    words,
                    place=place_of("cluster"),
                    value=cluster,
                    known=errors.NamesOf(errors.NameKind.CLUSTER),
                )
        if order_by is not None:
            order, is_given = order_of(order_by, place_of("order_by")), True
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
            open_only=not closed,
            is_json=is_json,
            remarks=() if order_by is None else order_remarks(order_by, place_of("order_by")),
        )

    def inside_cluster(self, options: SearchOptions, uuids: Collection[str]) -> Collection[str]:
        """Return the providers that belong to the cluster of the options; all if these name no cluster."""
        if options.cluster_aggregate is None or not uuids:
            return uuids
        forest = self._keeper.current().forest
        ids = aggregate_ids(self._database, [frozenset((options.cluster_aggregate,))])
        is_in_cluster = IsIn((frozenset(ids.values()),))
        rows = {uuid: row for uuid in uuids if (row := forest.row_of_uuid(uuid)) >= 0}
        flags = is_in_cluster.among(forest, forest.providers.root[list(rows.values())])
        return {uuid for uuid, is_inside in zip(rows, flags.tolist(), strict=True) if is_inside}


def _names_of_aggregates(
    query: CandidateQuery, options: SearchOptions, aggregates: Mapping[str, int]
) -> dict[int, str]:
    """Return what explanations call the aggregates of a query, by id."""
    called = {
        id_: f"{IN_CLUSTER}{options.cluster}" if uuid == options.cluster_aggregate else uuid
        for uuid, id_ in aggregates.items()
    }
    empty = sorted(frozenset().union(*_aggregates_in(query, options)) - aggregates.keys())
    # All of these are one to the search.
    called[NO_AGGREGATE] = f"{empty[0]} (no provider is in it)" if len(empty) == 1 else "without providers"
    if empty == [options.cluster_aggregate]:
        called[NO_AGGREGATE] = f"{IN_CLUSTER}{options.cluster}"
    return called


def queries_of(query: CandidateQuery) -> tuple[CandidateQuery, ...]:
    """Return the queries by turn of the candidates: of trees without cores first, then of core trees."""
    return (query,) if query.on_core_trees is None else (query, query.on_core_trees)


def _joined_with_core_trees(
    view: View, searched_others: _Searched, searched_cores: _Searched, most: int
) -> SearchResult:
    """Return the candidates of trees without cores, followed by the ones of core trees, `most` in all.

    The explanation is that of the core trees, unless only the others have candidates.
    """
    explaining = (
        searched_others
        if len(searched_others.found.candidates) and not len(searched_cores.found.candidates)
        else searched_cores
    )
    # In the order of `queries_of`.
    answer = JointAnswer(view.forest, (searched_others.found, searched_cores.found), most)
    return SearchResult(answer, view.names, explaining.explanation, explaining.in_full)


def _open_among(view: View, places: tuple[frozenset[int], ...], open_hosts: IsOpen | None) -> IsOpen | None:
    """Return the condition that hosts are open; None if all hosts in these aggregates are."""
    forest = view.forest
    if open_hosts is None or not places:
        return open_hosts
    roots = forest.roots[IsIn(places).among(forest, forest.roots)]
    return None if open_hosts.among(forest, roots).all() else open_hosts


def _is_core_tree(view: View) -> IsCoreTree:
    classes, traits = view.names.class_ids, view.names.trait_ids
    return IsCoreTree(classes["MEMORY_MB"], classes["PCPU"], traits[NUMA_ROOT])


def _refuse_shared_splits(view: View, forest_query: ForestQuery, query: CandidateQuery) -> None:
    """Raise BadRequest if only sharing providers offer a split class, unless `same_subtree` names its group.

    Source: placement-api.md, "Split amounts".
    """
    named = frozenset().union(*query.same_subtree)
    for group, resolved in zip(query.groups, forest_query.groups, strict=True):
        if not resolved.split or not group.is_split or group.suffix in named:
            continue
        sharers = view.sharing.of(view.forest, forest_query.sharing_trait).mask(view.forest.count)
        for class_id in resolved.split:
            offering = OffersClass(class_id).everywhere(view.forest)
            if len(offering) and sharers[offering].all():
                name = view.names.classes[class_id]
                raise errors.BadRequest(
                    f"only sharing providers offer {name}, and amounts cannot be split over these; "
                    "ask for it without split",
                    place=query.place(group, "split"),
                )
