"""What members of a claim would get under the rules between them, on the newest forest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from placement.domain import deadline
from placement.domain.errors import BadRequest, PlacementError, RequestTimeout, SearchTimeout
from placement.domain.member_rules import MemberRule
from placement.forest.arrays import Amounts, Mask
from placement.search.answer import Answer
from placement.search.budget import Budget, SearchEnded
from placement.search.members.board import Board, FindMore, Given, Kind
from placement.search.members.most import room_below
from placement.search.members.placing import Placed, Placing
from placement.search.members.reasons import hindrance
from placement.search.members.tally import Rule
from placement.search.score_cache import ScoreCache
from placement.services.following.forest_keeper import View
from placement.services.placement.candidates import Candidates
from placement.services.placement.holdings import Holdings
from placement.services.placement.rule_reading import Counted, RuleReader
from placement.services.placement.shortlists import NoCandidate, Proposal, Wish, proposal_of, reason_of
from placement.services.placement.standing import Held, Standing, standing_of
from placement.services.planning.world import NOTHING_DIFFERENT, WorldRequest, imagined
from placement.storage.database import Database

# Candidates that split an amount are built one by one.
_MOST_SPLIT = 1000
_SECONDS = 5.0


class Wanted(NamedTuple):
    """What a member asks for, and its name in rules, if it has one."""

    wish: Wish
    name: str | None


class Holding(NamedTuple):
    """A member that holds something already, and its name in rules, if it has one.

    `promised`: what it would hold, where nothing is written.
    """

    name: str | None
    consumer_uuid: str
    promised: Held | None = None


@dataclass(frozen=True, slots=True)
class RuleKept:
    """What became of a rule: by how many consumers it is broken where members are; 0 if it holds."""

    rule: MemberRule
    excess: int


class Decision(NamedTuple):
    """What members would get by place, why others would not, and what all of it depends on.

    `proven`: whether it is certain that no more of them can be placed.
    """

    proposals: dict[int, Proposal]
    refused: dict[int, PlacementError]
    standing: Standing
    proven: bool
    rules: tuple[RuleKept, ...]


class Ruled:
    """Decides for members under rules; nothing is written here."""

    def __init__(self, database: Database, candidates: Candidates, holdings: Holdings) -> None:
        self._database = database
        self._candidates = candidates
        self._holdings = holdings

    def view(self, world: WorldRequest) -> View:
        """The newest forest with what is to be different.

        Raises BadRequest naming the member, SearchTimeout.
        """
        view = self._candidates.view()
        if world == NOTHING_DIFFERENT:
            return view
        return imagined(self._database, view, world, None, self._candidates.budget()).view

    def decide(
        self,
        waiting: Mapping[int, Wanted],
        holding: Sequence[Holding],
        rules: Sequence[MemberRule],
        view: View | None = None,
    ) -> Decision:
        """Decide on a view or on the newest forest; `holding` are members that hold something already.

        Raises BadRequest naming the place in a rule, SearchTimeout, Unavailable.
        """
        own = {each.consumer_uuid for each in holding}
        named = {uuid for rule in rules for uuid in rule.consumers} | own
        groups = {name for rule in rules for name in rule.groups}
        standing = standing_of(self._database, self._holdings, self._candidates, named, groups)
        view = _with_promised(self._candidates.view() if view is None else view, holding)
        # Where they are now: what was seen of them before may be older.
        counted = Counted(standing, own, [(each.name, _held_by(each, standing)) for each in holding])
        reader = RuleReader(self._database, view, counted)
        resolved = [reader.rule(rule) for rule in rules]
        return _Deciding(self._candidates, view, rules, resolved, reader).decide(waiting, standing)


def _held_by(member: Holding, standing: Standing) -> Held:
    return standing.held.get(member.consumer_uuid, {}) if member.promised is None else member.promised


def _with_promised(view: View, holding: Sequence[Holding]) -> View:
    """The view where members have what they were promised."""
    promised = [each.promised for each in holding if each.promised]
    if not promised:
        return view
    forest = view.forest.forked()
    for held in promised:
        for uuid, amounts in held.items():
            for name, amount in amounts.items():
                forest.take(forest.row_of_uuid(uuid), view.names.class_ids[name], amount)
    return replace(view, forest=forest, score_cache=ScoreCache())


class _Deciding:
    def __init__(
        self,
        candidates: Candidates,
        view: View,
        rules: Sequence[MemberRule],
        resolved: Sequence[Rule],
        reader: RuleReader,
    ) -> None:
        self._candidates = candidates
        self._base = view
        # Scores of what is only promised are kept apart.
        self._view = replace(view, forest=view.forest.forked(), score_cache=ScoreCache())
        self._rules = rules
        self._board = Board(self._view.forest, reader.sharers, resolved)
        self._kinds: dict[tuple[Wish, tuple[int, ...]], Kind] = {}
        self._wishes: dict[Kind, Wish] = {}
        self._reasons: dict[Kind, PlacementError] = {}

    def decide(self, waiting: Mapping[int, Wanted], standing: Standing) -> Decision:
        refused: dict[int, PlacementError] = {}
        kinds: dict[int, Kind] = {}
        wrong: dict[Wish, PlacementError | None] = {}
        for place, wanted in waiting.items():
            error = self._wrong(wanted.wish, wrong)
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
                proposals[place] = self._proposal(given)
        kept = tuple(RuleKept(rule, self._board.excess(number)) for number, rule in enumerate(self._rules))
        return Decision(proposals, dict(sorted(refused.items())), standing, placed.proven, kept)

    def _wrong(self, wish: Wish, known: dict[Wish, PlacementError | None]) -> PlacementError | None:
        """What is wrong with a wish, if anything."""
        if wish not in known:
            known[wish] = None
            try:
                self._candidates.wanted(self._base, wish.query, wish.options)
            except BadRequest as error:
                known[wish] = error
        return known[wish]

    def _kind(self, wanted: Wanted) -> Kind:
        concerned = tuple(
            number
            for number, rule in enumerate(self._rules)
            if rule.members is None or wanted.name in rule.members
        )
        key = wanted.wish, concerned
        if key not in self._kinds:
            self._kinds[key] = Kind(self._finder(wanted.wish), self._room(wanted.wish), concerned)
            self._wishes[self._kinds[key]] = wanted.wish
        return self._kinds[key]

    def _finder(self, wish: Wish) -> FindMore:
        splits = wish.query.on_core_trees is not None or any(group.is_split for group in wish.query.groups)
        query = replace(wish.query, limit=_MOST_SPLIT if splits else None)

        def find(among: Mask | None) -> tuple[Answer, bool]:
            search = self._candidates.find_in(self._view, query, wish.options, among)
            return search.answer, self._candidates.is_cut(search, query)

        return find

    def _room(self, wish: Wish) -> Callable[[], Amounts]:
        @cache
        def room() -> Amounts:
            queries = self._candidates.wanted(self._base, wish.query, wish.options)
            return room_below(self._base.forest, self._base.sharing, queries)

        return room

    def _placed(self, members: list[Kind]) -> Placed:
        try:
            return Placing(self._board, members, _budget()).run()
        except SearchEnded as ended:
            if ended.abandoned:
                raise _gone() from ended
            if deadline.is_over():
                raise RequestTimeout("placing the members") from ended
            raise SearchTimeout(
                f"Placing {len(members)} members took longer than {_SECONDS:g} s and was ended. Ask for "
                "fewer at once, or with fewer rules."
            ) from ended

    def _proposal(self, given: Given) -> Proposal:
        return proposal_of(
            given.table.answer.element(given.at), self._view.names, self._wishes[given.kind].query
        )

    # -- why not ------------------------------------------------------------------------------------

    def _refusal(self, kind: Kind, placed: Placed, explaining: Budget) -> PlacementError:
        if kind not in self._reasons:
            try:
                explaining.look()
                reason = self._reason(kind, placed)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise _gone() from ended
                reason = f"{_share(placed)}; there was no time to find out what stops the next"
            self._reasons[kind] = NoCandidate(f"no candidate: {reason}")
        return self._reasons[kind]

    def _reason(self, kind: Kind, placed: Placed) -> str:
        """How many would fit, and what stops the next."""
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

    def _obstacle(self, kind: Kind) -> str:
        wish = self._wishes[kind]
        search = self._candidates.find_in(self._view, replace(wish.query, limit=1), wish.options)
        return reason_of(search)


def _budget() -> Budget:
    return Budget(deadline.remaining(_SECONDS), deadline.caller_is_gone)


def _gone() -> SearchTimeout:
    return SearchTimeout("The caller went away, so the search was ended.")


def _share(placed: Placed) -> str:
    return f"{placed.count} of {len(placed.given)} members have one"
