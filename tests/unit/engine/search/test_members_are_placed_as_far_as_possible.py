"""Members under rules: as many as any way of placing them has, and no rule is broken, on small forests."""

import tracemalloc
import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.domain.member_rules import MemberRule, Per, RuleKind
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.budget import Budget
from placement.engine.search.members.bounds import room_below
from placement.engine.search.members.places import (
    AggregatePlaces,
    HostPlaces,
    Marker,
    Places,
    ProviderPlaces,
    places_of_each,
    sharers_of,
)
from placement.engine.search.members.placing import MemberPlacing, PlacedMembers
from placement.engine.search.members.state import MemberKind, PlacementState
from placement.engine.search.members.tallies import ResolvedRule
from placement.engine.search.search import search
from tests.forests import World, loaded
from tests.naive import Forest, NaiveProvider
from tests.naive_members import NaiveMember, TooLong, breaches, most_members

ZONES = tuple(str(uuid.UUID(int=0xB << 120 | number)) for number in range(3))
_AMOUNTS: tuple[dict[str, int], ...] = ({"VCPU": 1}, {"VCPU": 2}, {"PCPU": 1}, {"VCPU": 1, "PCPU": 1})
QUERIES = (
    *(CandidateQuery((RequestGroup("", amounts),)) for amounts in _AMOUNTS),
    CandidateQuery((RequestGroup("1", {"PCPU": 1}), RequestGroup("2", {"PCPU": 1})), isolate=True),
)
NAMES = ("a", "b")
Others = list[list[list[str]]]
Case = tuple[list[NaiveProvider], list[NaiveMember], list[MemberRule], Others]


@st.composite
def hosts(draw: st.DrawFn) -> list[NaiveProvider]:
    """One to four hosts with zones, some with NUMA nodes below them."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        root = str(uuid.UUID(int=number + 1 << 64))
        zones = draw(st.sampled_from([(0,), (0,), (1,), (1,), (2,), (), (0, 1)]))
        cpus = {"VCPU": Inventory(total=draw(st.integers(1, 3)))}
        found.append(NaiveProvider(root, None, cpus, aggregates=frozenset(ZONES[at] for at in zones)))
        for node in range(draw(st.integers(0, 2))):
            own = {"PCPU": Inventory(total=draw(st.integers(1, 2)))}
            name = str(uuid.UUID(int=(number + 1 << 64) + node + 1))
            found.append(NaiveProvider(name, root, own, traits=frozenset({"HW_NUMA_ROOT"})))
    return found


@st.composite
def rules(draw: st.DrawFn) -> MemberRule:
    """A rule that must hold, or now and then need not."""
    kind = draw(st.sampled_from(RuleKind))
    per = Per.AGGREGATE if kind is RuleKind.SPREAD else draw(st.sampled_from(Per))
    marker = draw(st.sampled_from([{"resource_class": "PCPU"}, {"trait": "HW_NUMA_ROOT"}, {"depth": 1}]))
    zones = draw(st.sampled_from([ZONES[:2], ZONES]))
    return MemberRule(
        kind,
        per,
        count=draw(st.integers(1, 2)),
        max_skew=draw(st.integers(1, 2)),
        aggregates=zones if per is Per.AGGREGATE else (),
        **(marker if per is Per.PROVIDER else {}),  # type: ignore[arg-type]
        members=draw(st.sampled_from([None, None, frozenset("a"), frozenset("b")])),
        weight=draw(st.sampled_from([None, None, None, 1.0])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    providers = draw(hosts())
    asked = st.builds(NaiveMember, st.sampled_from(QUERIES), st.sampled_from(NAMES))
    members = draw(st.lists(asked, min_size=1, max_size=4))
    wanted = draw(st.lists(rules(), min_size=1, max_size=3))
    somewhere = st.sampled_from([[each.uuid] for each in providers])
    return providers, members, wanted, [draw(st.lists(somewhere, max_size=2)) for _ in wanted]


class Placement:
    """The decision on a naive forest."""

    def __init__(
        self,
        world: World,
        members: Sequence[NaiveMember],
        wanted: Sequence[MemberRule],
        others: Others,
        most: int,
    ) -> None:
        self.world = world
        self.most = most
        self.wanted = wanted
        self.sharers = sharers_of(world.forest, world.sharing, world.traits["MISC_SHARES_VIA_AGGREGATE"])
        self.forest = SimulatedForest(world.forest.snapshot())
        resolved = [self._rule(rule, has) for rule, has in zip(wanted, others, strict=True)]
        self.state = PlacementState(self.forest, self.sharers, resolved)
        kinds: dict[tuple[int, str], MemberKind] = {}
        for each in members:
            kinds.setdefault((QUERIES.index(each.query), each.name), self._kind(each))
        self.members = [kinds[QUERIES.index(each.query), each.name] for each in members]

    def run(self, steps: int = 30_000) -> PlacedMembers:
        return MemberPlacing(self.state, self.members, Budget(), steps).run()

    def _kind(self, member: NaiveMember) -> MemberKind:
        query = self.world.query(member.query, maximum=self.most)

        def find(among: object) -> tuple[Answer, bool]:
            found = search(self.forest, self.world.sharing, replace(query, among=among))  # type: ignore[arg-type]
            return Answer(self.forest, found), len(found.candidates) >= self.most

        concerned = tuple(
            at for at, rule in enumerate(self.wanted) if rule.members is None or member.name in rule.members
        )
        return MemberKind(find, lambda: room_below(self.world.forest, self.world.sharing, [query]), concerned)

    def _rule(self, rule: MemberRule, others: list[list[str]]) -> ResolvedRule:
        rows = [[self.forest.row_of_uuid(each) for each in has] for has in others]
        where = self._places(rule)
        limit = rule.max_skew if rule.kind is RuleKind.SPREAD else rule.count
        on_hosts = rule.per is not Per.PROVIDER
        return ResolvedRule(rule.kind, where, limit, places_of_each(where, rows), on_hosts, rule.weight)

    def _places(self, rule: MemberRule) -> Places:
        if rule.per is Per.HOST:
            return HostPlaces(self.forest, self.sharers)
        if rule.per is Per.AGGREGATE:
            known = self.world.aggregates
            ids = [known.setdefault(each, len(known) + 1) for each in rule.aggregates]
            return AggregatePlaces(self.forest, self.sharers, ids)
        class_id = None if rule.resource_class is None else self.world.classes.get(rule.resource_class, -1)
        trait = None if rule.trait is None else self.world.traits.get(rule.trait, -1)
        return ProviderPlaces(self.forest, Marker(class_id, trait, rule.depth))


@settings(max_examples=180, deadline=None)
@given(cases(), st.sampled_from((10**9, 10**9, 2)))
def test_all_that_fit_are_placed_and_lists_that_were_cut_are_no_proof(case: Case, most: int) -> None:
    providers, members, wanted, others = case
    world = World(providers)
    for name in ("VCPU", "PCPU"):
        world._class(name)
    world.load()
    decision = Placement(world, members, wanted, others, most)
    placed = decision.run()
    names = {world.forest.row_of_uuid(each.uuid): each.uuid for each in providers}
    given_to = [
        (member.name, [names[draw.row] for draw in each.draws])
        for member, each in zip(members, placed.candidates, strict=True)
        if each is not None
    ]
    assert not [*breaches(Forest(providers), wanted, given_to, others)]
    for column in decision.forest.inventories.values():
        assert (column.free_of(np.arange(decision.forest.count)) >= 0).all()
    try:
        possible = most_members(providers, members, wanted, others)
    except TooLong:
        return
    assert placed.count == possible if placed.proven else placed.count <= possible
    assert placed.proven or most < 10**9


RACKS = tuple(str(uuid.UUID(int=0xC << 120 | number)) for number in range(3))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_equal_members_under_two_limits_are_a_flow(data: st.DataObject) -> None:
    """Without trying ways, so it is exact also for many: at most so many per zone, and so many per rack."""
    somewhere = st.sampled_from([None, 0, 1, 2])
    providers = []
    for number in range(data.draw(st.integers(1, 5))):
        zone, rack = data.draw(somewhere), data.draw(somewhere)
        aggregates = {ZONES[zone]} if zone is not None else set()
        aggregates |= {RACKS[rack]} if rack is not None else set()
        cpus = {"VCPU": Inventory(total=data.draw(st.integers(1, 2)))}
        root = str(uuid.UUID(int=number + 1 << 64))
        providers.append(NaiveProvider(root, None, cpus, aggregates=frozenset(aggregates)))
    limits = [
        MemberRule(RuleKind.AT_MOST, Per.AGGREGATE, data.draw(st.integers(1, 2)), aggregates=each)
        for each in (ZONES, RACKS)
    ]
    members = [NaiveMember(QUERIES[0], "a")] * data.draw(st.integers(1, 6))
    world = loaded(providers)
    placed = Placement(world, members, limits, [[], []], 10**9).run(steps=0)
    assert placed.proven
    assert placed.count == most_members(providers, members, limits, [[], []], 10**6)


def _hosts_with(*vcpus: int) -> list[NaiveProvider]:
    return [
        NaiveProvider(str(uuid.UUID(int=number + 1 << 64)), None, {"VCPU": Inventory(total=total)})
        for number, total in enumerate(vcpus)
    ]


def _placed(
    hosts: list[NaiveProvider], count: int, wanted: list[MemberRule], others: Others, most: int
) -> PlacedMembers:
    return Placement(loaded(hosts), [NaiveMember(QUERIES[0], "a")] * count, wanted, others, most).run()


TOGETHER = MemberRule(RuleKind.TOGETHER, Per.HOST)
ROOTS_TOGETHER = MemberRule(RuleKind.TOGETHER, Per.PROVIDER, depth=0)


def test_places_that_a_cut_list_does_not_show_are_tried_or_leave_it_unproven() -> None:
    placed = _placed(_hosts_with(1, 1, 3), 3, [TOGETHER], [[]], most=2)
    assert (placed.count, placed.proven) == (3, True)
    hosts = _hosts_with(3, 3, 2)
    placed = _placed(hosts, 3, [TOGETHER], [[[hosts[2].uuid]]], most=2)
    assert (placed.count, placed.proven) == (2, True)
    placed = _placed(_hosts_with(1, 1, 3), 3, [ROOTS_TOGETHER], [[]], most=2)
    assert placed.count == 3 or not placed.proven


def test_frames_of_several_rules_are_not_listed() -> None:
    """There are a quarter of a million; the first has room for all."""
    hosts = _hosts_with(*[2] * 500)
    tracemalloc.start()
    placed = _placed(hosts, 2, [TOGETHER, ROOTS_TOGETHER], [[], []], most=10**9)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert placed.count == 2
    assert most_bytes < 20 * 2**20
