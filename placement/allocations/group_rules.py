"""Decisions on the proposals for members of a claim under rules between them, on the newest forest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from placement.allocations import applications
from placement.allocations.candidates import CandidateSearch
from placement.allocations.consumers_snapshot import ConsumersSnapshot
from placement.allocations.holdings import Holdings
from placement.allocations.statements import consumers
from placement.allocations.world import WorldRequest, imagined, timeout
from placement.engine.domain import errors, request_scope
from placement.engine.domain.claims import AmountsByProvider
from placement.engine.domain.member_rules import MemberRule, Per, RuleKind
from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.forest.inventories import Draw
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.members import places as members_places
from placement.engine.search.members.bounds import room_below
from placement.engine.search.members.hindrances import hindrance
from placement.engine.search.members.placing import MemberPlacing, PlacedMembers
from placement.engine.search.members.state import MemberKind, PlacementState
from placement.engine.search.members.tallies import ResolvedRule
from placement.engine.search.ranking import ScoreCache
from placement.providers.statements import names
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import View, hidden_consumers, visible_aggregates
from placement.storage.database import Database

# Candidates that split an amount are built one by one.
_MOST_SPLIT = 1000
_SECONDS = 5.0
_GONE = "The caller went away, so the search was ended."


class MemberHolding(NamedTuple):
    """A member that holds something already, and its name in rules, if it has one.

    `promised`: what it would hold, where nothing is written.
    """

    name: str | None
    consumer_uuid: str
    promised: AmountsByProvider | None = None


@dataclass(frozen=True, slots=True)
class RuleKept:
    """The state of a rule: by how many consumers it is broken at the places of members; 0 if it holds."""

    rule: MemberRule
    excess: int


class Decision(NamedTuple):
    """A decision: proposals and refusals of members by place, and the consumers that it depends on.

    `proven`: whether it is certain that no more of them can be placed.
    """

    proposals: dict[int, applications.Proposal]
    refused: dict[int, errors.PlacementError]
    snapshot: ConsumersSnapshot
    proven: bool
    rules: tuple[RuleKept, ...]


class GroupPlacer:
    """A use case that decides for members under rules, and writes nothing."""

    def __init__(self, database: Database, candidates: CandidateSearch, holdings: Holdings) -> None:
        self._database = database
        self._candidates = candidates
        self._holdings = holdings

    def view(self, world: WorldRequest) -> View:
        """Return the newest forest with these differences.

        Raises BadRequest naming the member, SearchTimeout.
        """
        view = self._candidates.view()
        return imagined(self._database, view, world, None, self._candidates.budget())[0]

    def decide(
        self,
        waiting: Mapping[int, applications.ClaimApplication],
        holding: Sequence[MemberHolding],
        rules: Sequence[MemberRule],
        view: View | None = None,
    ) -> Decision:
        """Decide on a view or on the newest forest; `holding` are members that hold something already.

        Raises BadRequest naming the place in a rule, SearchTimeout, Unavailable.
        """
        own = {each.consumer_uuid for each in holding}
        named = {uuid for rule in rules for uuid in rule.consumers} | own
        groups = {name for rule in rules for name in rule.groups}
        snapshot = self._snapshot_of(named, groups)
        view = self._candidates.view() if view is None else view
        promised = [each.promised for each in holding if each.promised]
        if promised:
            forest = SimulatedForest(view.forest)
            for amounts in promised:
                for uuid, held in amounts.items():
                    row, ids = forest.row_of_uuid(uuid), view.names.class_ids
                    forest.take([Draw(row, ids[name], amount) for name, amount in held.items()])
            view = replace(view, forest=forest, score_cache=ScoreCache())
        deciding = _Deciding(self._database, self._candidates, view, rules, snapshot, holding)
        return deciding.decide(waiting)

    def _snapshot_of(self, named: Collection[str], groups: Collection[str]) -> ConsumersSnapshot:
        """Return the present state of consumers, and of all in some groups, as far as they may be seen."""
        with self._database.read() as connection:
            found = consumers.members(connection, groups)
        counted = {name: frozenset(found.get(name, ())) for name in groups}
        uuids = sorted({*named, *(uuid for each in counted.values() for uuid in each)})
        known = self._holdings.of_consumers(uuids) if uuids else {}
        held = {uuid: each.resources for uuid, each in known.items()}
        hidden = hidden_consumers(held, lambda: self._candidates.view().forest)
        generations = {
            uuid: known[uuid].consumer.generation if uuid in known else None
            for uuid in uuids
            if uuid not in hidden
        }
        return ConsumersSnapshot(
            counted, generations, {uuid: each for uuid, each in held.items() if uuid not in hidden}
        )


def kind_of(
    candidates: CandidateSearch,
    base_view: View,
    view: View,
    claim_query: applications.ClaimQuery,
    rules: tuple[int, ...] = (),
) -> MemberKind:
    """Return members with one query under rules, given by number, on a view of what is left of a base."""
    query, options = claim_query.query, claim_query.options
    splits = query.on_core_trees is not None or any(group.is_split for group in query.groups)
    limited = replace(query, limit=_MOST_SPLIT if splits else None)

    def find(among: Mask | None) -> tuple[Answer, bool]:
        search = candidates.find_in(view, limited, options, among)
        return search.answer, candidates.is_cut(search, limited)

    @cache
    def room() -> Amounts:
        return room_below(base_view.forest, base_view.sharing, candidates.wanted(base_view, query, options))

    return MemberKind(find, room, rules)


def placed_together(
    candidates: CandidateSearch, view: View, claim_query: applications.ClaimQuery, count: int, budget: Budget
) -> int:
    """Return how many of `count` members with equal queries one claim would place.

    Raises SearchEnded, BadRequest for names that are not known.
    """
    forest = SimulatedForest(view.forest)
    left = replace(view, forest=forest, score_cache=ScoreCache())
    sharers = members_places.sharers_of(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
    state = PlacementState(forest, sharers, ())
    return MemberPlacing(state, [kind_of(candidates, view, left, claim_query)] * count, budget).run().count


class _Deciding:
    """A decision for one view of the forest, and for consumers that are placed already.

    These are others by the snapshot, and the members in `holding`, which do not count a second time.
    """

    def __init__(
        self,
        database: Database,
        candidates: CandidateSearch,
        view: View,
        rules: Sequence[MemberRule],
        snapshot: ConsumersSnapshot,
        holding: Sequence[MemberHolding],
    ) -> None:
        self._database, self._candidates, self._rules, self._base = database, candidates, rules, view
        self._snapshot, self._holding = snapshot, holding
        self._sharers = members_places.sharers_of(
            view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT]
        )
        # Scores of what is only promised are kept apart.
        forest = SimulatedForest(view.forest)
        self._view = replace(view, forest=forest, score_cache=ScoreCache())
        self._state = PlacementState(forest, self._sharers, [self._resolved(rule) for rule in rules])
        self._kinds: dict[tuple[applications.ClaimQuery, tuple[int, ...]], MemberKind] = {}
        self._claim_queries: dict[MemberKind, applications.ClaimQuery] = {}
        self._reasons: dict[MemberKind, errors.PlacementError] = {}

    # -- rules by ids -------------------------------------------------------------------------------

    def _resolved(self, rule: MemberRule) -> ResolvedRule:
        """Return the rule by ids. Raises BadRequest with the name that does not exist."""
        snapshot, places = self._snapshot, self._places(rule)
        others = {*rule.consumers, *(uuid for name in rule.groups for uuid in snapshot.groups[name])}
        others -= {each.consumer_uuid for each in self._holding}
        # This is where members are now; what was seen of them before may be older.
        held = [
            self._rows(snapshot.held.get(uuid, {}) if promised is None else promised)
            for name, uuid, promised in self._holding
            if rule.members is None or name in rule.members
        ]
        counted = [self._rows(snapshot.held[uuid]) for uuid in sorted(others) if uuid in snapshot.held]
        return ResolvedRule(
            rule.kind,
            places,
            rule.max_skew if rule.kind is RuleKind.SPREAD else rule.count,
            members_places.places_of_each(places, counted + held),
            rule.per is not Per.PROVIDER,
            rule.weight,
            members_places.places_of_each(places, held),
        )

    def _rows(self, held: Mapping[str, object]) -> list[int]:
        rows = (self._base.forest.row_of_uuid(uuid) for uuid in held)
        return [row for row in rows if row >= 0]

    def _places(self, rule: MemberRule) -> members_places.Places:
        forest, known = self._base.forest, self._base.names
        if rule.per is Per.HOST:
            return members_places.HostPlaces(forest, self._sharers)
        if rule.per is Per.AGGREGATE:
            ids: list[int] = []
            if rule.aggregates:
                with self._database.read() as connection:
                    found = visible_aggregates(forest, names.aggregate_ids(connection, rule.aggregates))
                # Negative for one that no provider was ever in.
                ids = [found.get(uuid, -at) for at, uuid in enumerate(rule.aggregates, start=1)]
            return members_places.AggregatePlaces(forest, self._sharers, ids)
        marker = members_places.Marker(depth=rule.depth)
        if rule.resource_class is not None:
            if rule.resource_class not in known.class_ids:
                kind, place = errors.NameKind.RESOURCE_CLASS, rule.place / "resource_class"
                raise errors.no_such(kind, (rule.resource_class,), place)
            marker = members_places.Marker(class_id=known.class_ids[rule.resource_class])
        elif rule.trait is not None:
            if rule.trait not in known.trait_ids:
                raise errors.no_such(errors.NameKind.TRAIT, (rule.trait,), rule.place / "trait")
            marker = members_places.Marker(trait_id=known.trait_ids[rule.trait])
        return members_places.ProviderPlaces(forest, marker)

    # -- members ------------------------------------------------------------------------------------

    def decide(self, waiting: Mapping[int, applications.ClaimApplication]) -> Decision:
        refused: dict[int, errors.PlacementError] = {}
        kinds: dict[int, MemberKind] = {}
        # What is wrong with a query, None if nothing is.
        wrong: dict[applications.ClaimQuery, errors.PlacementError | None] = {}
        for place, application in waiting.items():
            claim_query = application.claim_query
            if claim_query not in wrong:
                wrong[claim_query] = None
                try:
                    self._candidates.wanted(self._base, claim_query.query, claim_query.options)
                except errors.BadRequest as problem:
                    wrong[claim_query] = problem
            error = wrong[claim_query]
            if error is None:
                kinds[place] = self._kind(application)
            else:
                refused[place] = error
        placed = self._placed(list(kinds.values()))
        budget = _budget()
        proposals: dict[int, applications.Proposal] = {}
        for place, given in zip(kinds, placed.candidates, strict=True):
            if given is None:
                refused[place] = self._refusal(kinds[place], placed, budget)
            else:
                element, claim_query = given.table.answer.element(given.at), self._claim_queries[given.kind]
                proposals[place] = applications.proposal_of(element, self._view.names, claim_query.query)
        kept = tuple(RuleKept(rule, self._state.excess(number)) for number, rule in enumerate(self._rules))
        return Decision(proposals, dict(sorted(refused.items())), self._snapshot, placed.proven, kept)

    def _kind(self, application: applications.ClaimApplication) -> MemberKind:
        concerned = tuple(
            number
            for number, rule in enumerate(self._rules)
            if rule.members is None or application.name in rule.members
        )
        claim_query = application.claim_query
        key = claim_query, concerned
        if key not in self._kinds:
            kind = kind_of(self._candidates, self._base, self._view, claim_query, concerned)
            self._kinds[key], self._claim_queries[kind] = kind, claim_query
        return self._kinds[key]

    def _placed(self, members: list[MemberKind]) -> PlacedMembers:
        try:
            return MemberPlacing(self._state, members, _budget()).run()
        except SearchEnded as ended:
            raise timeout(
                ended,
                _GONE,
                "placing the members",
                f"Placing {len(members)} members took longer than {_SECONDS:g} s and was ended. Ask for "
                "fewer at once, or with fewer rules.",
            ) from ended

    # -- why not ------------------------------------------------------------------------------------

    def _refusal(self, kind: MemberKind, placed: PlacedMembers, budget: Budget) -> errors.PlacementError:
        if kind not in self._reasons:
            try:
                budget.look()
                reason = self._reason(kind, placed)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise errors.SearchTimeout(_GONE) from ended
                reason = f"{_share(placed)}; time ran out before the reason was found"
            self._reasons[kind] = applications.NoCandidate(f"no candidate: {reason}")
        return self._reasons[kind]

    def _reason(self, kind: MemberKind, placed: PlacedMembers) -> str:
        """Return the number of members that would fit, and the obstacle for the next one."""
        found = hindrance(self._state, kind)
        if not found.with_room and not placed.count:
            return self._obstacle(kind)
        many = _share(placed)
        tried = "" if placed.proven else "; not all ways to place them were tried"
        if not found.with_room:
            return f"{many}; then {self._obstacle(kind)}{tried}"
        left_out = [
            f"{self._rules[number].place} ({self._rules[number].text}) rules out {hosts} of them"
            for number, hosts in found.left_out.items()
        ]
        have = "1 host has" if found.with_room == 1 else f"{found.with_room} hosts have"
        return f"{many}; {have} room for another, but {', '.join(left_out) or 'not for all members'}{tried}"

    def _obstacle(self, kind: MemberKind) -> str:
        claim_query = self._claim_queries[kind]
        query = replace(claim_query.query, limit=1)
        search = self._candidates.find_in(self._view, query, claim_query.options)
        return self._candidates.reason_of(search)


def _budget() -> Budget:
    return Budget(request_scope.remaining(_SECONDS), request_scope.caller_is_gone)


def _share(placed: PlacedMembers) -> str:
    return f"{placed.count} of {len(placed.candidates)} members fit"
