"""Decisions on what members of a claim would get under the rules between them, on the newest forest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from placement.allocations.applications import (
    ClaimApplication,
    ClaimQuery,
    NoCandidate,
    Proposal,
    proposal_of,
)
from placement.allocations.candidates import CandidateSearch
from placement.allocations.holdings import Holdings, held_by
from placement.allocations.statements import consumers
from placement.allocations.world import WorldRequest, imagined, timeout
from placement.engine.domain import errors, request_scope
from placement.engine.domain.groups import MemberRule, Per, RuleKind
from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.forest.inventories import Draw
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.members.board import MemberKind, PlacementState, room_below
from placement.engine.search.members.places import (
    AggregatePlaces,
    HostPlaces,
    Marker,
    Places,
    ProviderPlaces,
    ResolvedRule,
    places_of_each,
    sharers_of,
)
from placement.engine.search.members.placing import MemberPlacing, PlacedMembers, hindrance
from placement.engine.search.ranking import ScoreCache
from placement.providers import view as scoping
from placement.providers.statements import names
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import View
from placement.storage.database import Database, Transaction

# The consumers that count in the rules of a claim beside its members, checked again when it is written.
#
# Groups are locked first, then consumers: of two claims into a group the second decides again, and sees the
# first. Consumers that do not exist yet cannot be locked, so callers that add some at a time name a group.
Held = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ConsumersSnapshot:
    """Consumers as they were found: `generations`, None for one that does not exist, and what they hold.

    `groups`: the consumers in each group that counts.
    """

    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    generations: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)

    def confirm(self, transaction: Transaction, joined: Iterable[str]) -> None:
        """Lock the consumers and groups, joined ones too. Raises ConcurrentUpdate if something changed."""
        consumers.lock_groups(transaction, {*self.groups, *joined})
        present = consumers.members(transaction, self.groups)
        if any(present.get(name, set()) != set(uuids) for name, uuids in self.groups.items()):
            raise errors.ConcurrentUpdate("another claim changed a group meanwhile")
        locked = consumers.lock(transaction, self.generations) if self.generations else {}
        for uuid, generation in self.generations.items():
            now = locked[uuid].generation if uuid in locked else None
            if now != generation:
                raise errors.ConcurrentUpdate(f"consumer {uuid} has changed meanwhile")
        # A consumer that was deleted and has claimed again may have the generation it had before.
        held = held_by(transaction, locked)
        for uuid in locked:
            if held.get(uuid, {}) != self.held.get(uuid, {}):
                raise errors.ConcurrentUpdate(f"consumer {uuid} holds something else than before")


# Rules between members by ids: their places in a forest, and the consumers that count in them already.


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
    promised: Held | None = None


@dataclass(frozen=True, slots=True)
class RuleKept:
    """The state of a rule: by how many consumers it is broken at the places of members; 0 if it holds."""

    rule: MemberRule
    excess: int


class Decision(NamedTuple):
    """A decision: what members would get by place, why others get nothing, and what it depends on.

    `proven`: whether it is certain that no more of them can be placed.
    """

    proposals: dict[int, Proposal]
    refused: dict[int, errors.PlacementError]
    standing: ConsumersSnapshot
    proven: bool
    rules: tuple[RuleKept, ...]


class GroupPlacer:
    """A use case that decides for members under rules, and writes nothing."""

    def __init__(self, database: Database, candidates: CandidateSearch, holdings: Holdings) -> None:
        self._database = database
        self._candidates = candidates
        self._holdings = holdings

    def view(self, world: WorldRequest) -> View:
        """Return the newest forest with what is to be different.

        Raises BadRequest naming the member, SearchTimeout.
        """
        view = self._candidates.view()
        return imagined(self._database, view, world, None, self._candidates.budget())[0]

    def decide(
        self,
        waiting: Mapping[int, ClaimApplication],
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
        standing = self._standing(named, groups)
        view = self._candidates.view() if view is None else view
        promised = [each.promised for each in holding if each.promised]
        if promised:
            forest = SimulatedForest(view.forest)
            for amounts in promised:
                for uuid, held in amounts.items():
                    row, ids = forest.row_of_uuid(uuid), view.names.class_ids
                    forest.take([Draw(row, ids[name], amount) for name, amount in held.items()])
            view = replace(view, forest=forest, score_cache=ScoreCache())
        deciding = _Deciding(self._database, self._candidates, view, rules, standing, holding)
        return deciding.decide(waiting)

    def _standing(self, named: Collection[str], groups: Collection[str]) -> ConsumersSnapshot:
        """Return the present standing of consumers, and of all in some groups, as far as they may be seen."""
        with self._database.read() as connection:
            found = consumers.members(connection, groups)
        counted = {name: frozenset(found.get(name, ())) for name in groups}
        uuids = sorted({*named, *(uuid for each in counted.values() for uuid in each)})
        known = self._holdings.of_consumers(uuids) if uuids else {}
        held = {uuid: each.resources for uuid, each in known.items()}
        hidden = scoping.hidden(held, lambda: self._candidates.view().forest)
        generations = {
            uuid: known[uuid].consumer.generation if uuid in known else None
            for uuid in uuids
            if uuid not in hidden
        }
        return ConsumersSnapshot(
            counted, generations, {uuid: each for uuid, each in held.items() if uuid not in hidden}
        )


def kind_of(
    candidates: CandidateSearch, base: View, view: View, wish: ClaimQuery, rules: tuple[int, ...] = ()
) -> MemberKind:
    """Return members with one wish under rules, given by number, on a view of what is left of a base."""
    splits = wish.query.on_core_trees is not None or any(group.is_split for group in wish.query.groups)
    query = replace(wish.query, limit=_MOST_SPLIT if splits else None)

    def find(among: Mask | None) -> tuple[Answer, bool]:
        search = candidates.find_in(view, query, wish.options, among)
        return search.answer, candidates.is_cut(search, query)

    @cache
    def room() -> Amounts:
        return room_below(base.forest, base.sharing, candidates.wanted(base, wish.query, wish.options))

    return MemberKind(find, room, rules)


def placed_together(
    candidates: CandidateSearch, view: View, wish: ClaimQuery, count: int, budget: Budget
) -> int:
    """Return how many of `count` members with equal wishes one claim would place.

    Raises SearchEnded, BadRequest for names that are not known.
    """
    forest = SimulatedForest(view.forest)
    left = replace(view, forest=forest, score_cache=ScoreCache())
    sharers = sharers_of(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
    board = PlacementState(forest, sharers, ())
    return MemberPlacing(board, [kind_of(candidates, view, left, wish)] * count, budget).run().count


class _Deciding:
    """A decision for one view of the forest, and for consumers that are placed already.

    These are others by their standing, and the members in `holding`, which do not count a second time.
    """

    def __init__(
        self,
        database: Database,
        candidates: CandidateSearch,
        view: View,
        rules: Sequence[MemberRule],
        standing: ConsumersSnapshot,
        holding: Sequence[MemberHolding],
    ) -> None:
        self._database, self._candidates, self._rules, self._base = database, candidates, rules, view
        self._standing, self._holding = standing, holding
        self._sharers = sharers_of(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        # Scores of what is only promised are kept apart.
        forest = SimulatedForest(view.forest)
        self._view = replace(view, forest=forest, score_cache=ScoreCache())
        self._board = PlacementState(forest, self._sharers, [self._resolved(rule) for rule in rules])
        self._kinds: dict[tuple[ClaimQuery, tuple[int, ...]], MemberKind] = {}
        self._wishes: dict[MemberKind, ClaimQuery] = {}
        self._reasons: dict[MemberKind, errors.PlacementError] = {}

    # -- rules by ids -------------------------------------------------------------------------------

    def _resolved(self, rule: MemberRule) -> ResolvedRule:
        """Return the rule by ids. Raises BadRequest naming what does not exist."""
        standing, places = self._standing, self._places(rule)
        others = {*rule.consumers, *(uuid for name in rule.groups for uuid in standing.groups[name])}
        others -= {each.consumer_uuid for each in self._holding}
        # This is where members are now; what was seen of them before may be older.
        held = [
            self._rows(standing.held.get(uuid, {}) if promised is None else promised)
            for name, uuid, promised in self._holding
            if rule.members is None or name in rule.members
        ]
        counted = [self._rows(standing.held[uuid]) for uuid in sorted(others) if uuid in standing.held]
        return ResolvedRule(
            rule.kind,
            places,
            rule.max_skew if rule.kind is RuleKind.SPREAD else rule.count,
            places_of_each(places, counted + held),
            rule.per is not Per.PROVIDER,
            rule.weight,
            places_of_each(places, held),
        )

    def _rows(self, held: Mapping[str, object]) -> list[int]:
        rows = (self._base.forest.row_of_uuid(uuid) for uuid in held)
        return [row for row in rows if row >= 0]

    def _places(self, rule: MemberRule) -> Places:
        forest, known = self._base.forest, self._base.names
        if rule.per is Per.HOST:
            return HostPlaces(forest, self._sharers)
        if rule.per is Per.AGGREGATE:
            ids: list[int] = []
            if rule.aggregates:
                with self._database.read() as connection:
                    found = scoping.aggregates(forest, names.aggregate_ids(connection, rule.aggregates))
                # Negative for one that no provider was ever in.
                ids = [found.get(uuid, -at) for at, uuid in enumerate(rule.aggregates, start=1)]
            return AggregatePlaces(forest, self._sharers, ids)
        marker = Marker(depth=rule.depth)
        if rule.resource_class is not None:
            if rule.resource_class not in known.class_ids:
                where, name = f"{rule.place}.resource_class", rule.resource_class
                raise errors.BadRequest(f"{where}: No such resource class {name}.")
            marker = Marker(class_id=known.class_ids[rule.resource_class])
        elif rule.trait is not None:
            if rule.trait not in known.trait_ids:
                raise errors.BadRequest(f"{rule.place}.trait: No such trait {rule.trait}.")
            marker = Marker(trait_id=known.trait_ids[rule.trait])
        return ProviderPlaces(forest, marker)

    # -- members ------------------------------------------------------------------------------------

    def decide(self, waiting: Mapping[int, ClaimApplication]) -> Decision:
        refused: dict[int, errors.PlacementError] = {}
        kinds: dict[int, MemberKind] = {}
        # What is wrong with a wish, None if nothing is.
        wrong: dict[ClaimQuery, errors.PlacementError | None] = {}
        for place, wanted in waiting.items():
            wish = wanted.wish
            if wish not in wrong:
                wrong[wish] = None
                try:
                    self._candidates.wanted(self._base, wish.query, wish.options)
                except errors.BadRequest as problem:
                    wrong[wish] = problem
            error = wrong[wish]
            if error is None:
                kinds[place] = self._kind(wanted)
            else:
                refused[place] = error
        placed = self._placed(list(kinds.values()))
        explaining = _budget()
        proposals: dict[int, Proposal] = {}
        for place, given in zip(kinds, placed.given, strict=True):
            if given is None:
                refused[place] = self._refusal(kinds[place], placed, explaining)
            else:
                element, wish = given.table.answer.element(given.at), self._wishes[given.kind]
                proposals[place] = proposal_of(element, self._view.names, wish.query)
        kept = tuple(RuleKept(rule, self._board.excess(number)) for number, rule in enumerate(self._rules))
        return Decision(proposals, dict(sorted(refused.items())), self._standing, placed.proven, kept)

    def _kind(self, wanted: ClaimApplication) -> MemberKind:
        concerned = tuple(
            number
            for number, rule in enumerate(self._rules)
            if rule.members is None or wanted.name in rule.members
        )
        key = wanted.wish, concerned
        if key not in self._kinds:
            self._kinds[key] = kind_of(self._candidates, self._base, self._view, wanted.wish, concerned)
            self._wishes[self._kinds[key]] = wanted.wish
        return self._kinds[key]

    def _placed(self, members: list[MemberKind]) -> PlacedMembers:
        try:
            return MemberPlacing(self._board, members, _budget()).run()
        except SearchEnded as ended:
            raise timeout(
                ended,
                _GONE,
                "placing the members",
                f"Placing {len(members)} members took longer than {_SECONDS:g} s and was ended. Ask for "
                "fewer at once, or with fewer rules.",
            ) from ended

    # -- why not ------------------------------------------------------------------------------------

    def _refusal(self, kind: MemberKind, placed: PlacedMembers, explaining: Budget) -> errors.PlacementError:
        if kind not in self._reasons:
            try:
                explaining.look()
                reason = self._reason(kind, placed)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise errors.SearchTimeout(_GONE) from ended
                reason = f"{_share(placed)}; there was no time to find out what stops the next"
            self._reasons[kind] = NoCandidate(f"no candidate: {reason}")
        return self._reasons[kind]

    def _reason(self, kind: MemberKind, placed: PlacedMembers) -> str:
        """Return how many would fit, and what stops the next."""
        found = hindrance(self._board, kind)
        if not found.with_room and not placed.count:
            return self._obstacle(kind)
        many = _share(placed)
        tried = "" if placed.proven else "; not all ways to place them were tried"
        if not found.with_room:
            return f"{many}; then {self._obstacle(kind)}{tried}"
        left_out = [
            f"{self._rules[number].place} ({self._rules[number].text}) leaves out {hosts} of them"
            for number, hosts in found.left_out.items()
        ]
        have = "1 host has" if found.with_room == 1 else f"{found.with_room} hosts have"
        return f"{many}; {have} room for another one, but {', '.join(left_out) or 'not for all'}{tried}"

    def _obstacle(self, kind: MemberKind) -> str:
        wish = self._wishes[kind]
        search = self._candidates.find_in(self._view, replace(wish.query, limit=1), wish.options)
        return self._candidates.reason_of(search)


def _budget() -> Budget:
    return Budget(request_scope.remaining(_SECONDS), request_scope.caller_is_gone)


def _share(placed: PlacedMembers) -> str:
    return f"{placed.count} of {len(placed.given)} members have one"
