"""The forest's columns stay consistent under any sequence of changes, and a snapshot stays as it was."""

import gc
import json
import uuid
import weakref
from array import array
from dataclasses import replace
from uuid import UUID

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from placement.engine.domain.inventories import Inventory
from placement.engine.forest.arrays import IdIndex
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.forest.memberships import Memberships
from placement.engine.forest.providers import InventoryRow, ProviderRecord, ProviderRow, Snapshot
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.forest.texts import assembled, fractions, from_text, lines, numbers, to_text
from placement.engine.search.answer import Answer, summarise
from tests.forests import World, loaded, without
from tests.naive import NaiveProvider
from tests.strategies import Search, searches


def test_uuids_survive_being_bytes():
    texts = [str(uuid.uuid4()) for _ in range(50)]
    assert to_text(from_text(texts)) == texts


@settings(max_examples=20)
class IdIndexIsADict(RuleBasedStateMachine):
    """An index with many additions and removals finds what a dict finds, across its merges."""

    def __init__(self):
        super().__init__()
        self.index, self.model = IdIndex(), {}

    @rule(start=st.integers(0, 20_000), count=st.integers(1, 3000))
    def add(self, start, count):
        for key in range(start, start + count):
            self.index.put_all([(key, key * 2)])
            self.model[key] = key * 2

    @rule(start=st.integers(0, 20_000), count=st.integers(1, 500))
    def forget(self, start, count):
        for key in range(start, start + count):
            self.index.put_all([(key, -1)])
            self.model.pop(key, None)

    @rule(keys=st.lists(st.integers(0, 25_000), max_size=50))
    def look(self, keys):
        assert [self.index.get(key) for key in keys] == [self.model.get(key, -1) for key in keys]


TestIdIndex = IdIndexIsADict.TestCase


def test_sets_nobody_has_any_more_are_reused():
    members = Memberships()
    members.ensure(4)
    for turn in range(1000):
        members.assign(0, frozenset({turn, turn + 1}))
    assert len(members._sets) <= 3
    assert members.of(0) == {999, 1000}


def test_loading_anew_is_a_change_of_shape_whatever_happened_before():
    """What is kept of the trees by their version, such as sharing, must not outlive them."""
    world = World([NaiveProvider(str(uuid.UUID(int=number))) for number in range(1, 4)])
    numbers = {str(turn): 100 + turn for turn in range(9)}
    world.traits.update(numbers, T=99)
    world.aggregates.update(numbers, A=99)
    for turn in range(9):
        before = world.forest.shape_version
        world.load()
        assert world.forest.shape_version > before
        names = {"traits": frozenset({"T", str(turn)}), "aggregates": frozenset({"A", str(turn)})}
        for provider in world.providers:
            world.forest.apply([world.record(replace(provider, **names), revision=turn + 2)])


def test_rows_of_providers_that_do_not_exist_are_left_out():
    """A database that was written to without foreign keys has them; the last provider must not get theirs."""
    offers = [
        [*(array("q", [each]) for each in (id_, 77, 8, 0, 1, 8, 1, 1)), array("d", [1.0])] for id_ in (1, 9)
    ]
    pairs = [[array("q", [9, 1]), array("q", [5, 6])], [array("q", [9]), array("q", [7])]]
    forest = Forest()
    uuids = [(array("q", [1]), str(UUID(int=1)))]
    forest.load(Snapshot([array("q", [each]) for each in (1, 0, 0, 1, 1, 1)], uuids, offers, pairs, pairs))
    assert forest.traits.of(0) == forest.aggregates.of(0) == {6}
    assert forest.column(77).fitting(1).tolist() == [0]


@settings(max_examples=60, stateful_step_count=30)
class ForestIsItsModel(RuleBasedStateMachine):
    """Creating, changing, re-parenting and removing providers leaves exactly what a plain model says."""

    def __init__(self):
        super().__init__()
        self.forest, self.model, self.next_id, self.revision = Forest(), {}, 1, 0

    def root_of(self, id_):
        while self.model[id_]["parent"]:
            id_ = self.model[id_]["parent"]
        return id_

    def below(self, id_):
        found = [id_]
        for at in found:
            found += [other for other, row in self.model.items() if row["parent"] == at]
        return found

    def tell(self, ids):
        self.revision += 1
        records = []
        for id_ in ids:
            row = self.model[id_]
            inventories = tuple(
                InventoryRow(class_id, capacity, 1, 10**6, 1, used)
                for class_id, (capacity, used) in row["inventories"].items()
            )
            head = ProviderRow(id_, row["uuid"], 0, row["parent"], self.root_of(id_), self.revision)
            records.append(ProviderRecord(head, inventories, row["traits"], frozenset()))
        self.forest.apply(records)

    @rule(pick=st.integers(0, 100), root=st.booleans())
    def create(self, pick, root):
        parents = sorted(self.model)
        parent = None if root or not parents else parents[pick % len(parents)]
        own = self.next_id
        self.next_id += 1
        place = {"uuid": str(uuid.UUID(int=own)), "parent": parent}
        self.model[own] = {**place, "inventories": {}, "traits": frozenset()}
        self.tell([own])

    @rule(
        pick=st.integers(0, 100),
        inventories=st.dictionaries(st.integers(1, 3), st.tuples(st.integers(0, 9), st.integers(0, 9))),
        traits=st.frozensets(st.integers(1, 4)),
    )
    def change(self, pick, inventories, traits):
        if self.model:
            chosen = sorted(self.model)[pick % len(self.model)]
            self.model[chosen].update(inventories=inventories, traits=traits)
            self.tell([chosen])

    @rule(pick=st.integers(0, 100), place=st.integers(0, 100), backwards=st.booleans())
    def move(self, pick, place, backwards):
        if not self.model:
            return
        chosen = sorted(self.model)[pick % len(self.model)]
        members = self.below(chosen)
        others = [None, *sorted(set(self.model) - set(members))]
        self.model[chosen]["parent"] = others[place % len(others)]
        self.tell(members[::-1] if backwards else members)

    @rule(pick=st.integers(0, 100))
    def remove(self, pick):
        leaves = [id_ for id_ in sorted(self.model) if len(self.below(id_)) == 1]
        if leaves:
            chosen = leaves[pick % len(leaves)]
            del self.model[chosen]
            self.forest.remove(chosen)

    @invariant()
    def holds_what_the_model_holds(self):
        assert len(self.forest) == len(self.model)
        trees = {}
        for id_ in self.model:
            trees.setdefault(self.root_of(id_), set()).add(id_)
        rows = [self.forest.row_of_uuid(self.model[root]["uuid"]) for root in trees]
        if not rows:
            return
        for root, expected in zip(rows, trees.values(), strict=True):
            assert sorted(self.forest.providers.id[self.forest.in_trees(np.array([root]))]) == sorted(
                expected
            )
        ids = sorted(self.model)
        rows = [self.forest.row_of_uuid(self.model[id_]["uuid"]) for id_ in ids]
        shown = summarise(self.forest, np.array(rows, np.int32))
        for id_, summary in zip(ids, shown, strict=True):
            row = self.model[id_]
            assert summary.uuid == row["uuid"]
            assert summary.root_uuid == self.model[self.root_of(id_)]["uuid"]
            assert summary.parent_uuid == (self.model[row["parent"]]["uuid"] if row["parent"] else None)
            assert summary.trait_ids == row["traits"]
            assert {r[0]: (r[1], r[2]) for r in summary.resources} == row["inventories"]


TestForest = ForestIsItsModel.TestCase


def looked_at(world: World, query) -> object:
    found = world.search(query)
    answer = Answer(world.forest, found)
    return list(answer.elements()), [list(tree) for tree in answer.tree_summaries(answer.trees())]


@given(searches(), st.data())
def test_a_snapshot_stays_as_it_was(given_search: Search, data: st.DataObject) -> None:
    providers, query = given_search
    world = loaded(providers)
    before = looked_at(world, query)
    forest = world.forest
    kept = forest.snapshot()
    again = [forest.snapshot()]
    parents = {provider.parent for provider in providers}
    for number in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.sampled_from(providers))
        if chosen.uuid in parents or data.draw(st.booleans()):
            change = without(chosen) if data.draw(st.booleans()) else chosen
            if forest.knows(world.ids[chosen.uuid]):
                forest.apply([world.record(change, revision=2 + number)])
        else:
            forest.remove(world.ids[chosen.uuid])
        again.append(forest.snapshot())
    after = looked_at(world, query)
    world.forest = kept
    assert looked_at(world, query) == before
    world.forest = again[-1]
    assert looked_at(world, query) == after
    assert again[0] is kept


def a_provider(number: int, used: int = 0) -> ProviderRecord:
    row = ProviderRow(number, f"{number:08x}-0000-4000-8000-000000000000", used, None, number, used)
    return ProviderRecord(row, (InventoryRow(1, 10, 1, 10, 1, used),), frozenset(), frozenset())


def columns(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    return forest.column(1).entries.used, forest.providers.revision


def test_what_is_looked_at_is_copied_once_and_nothing_else_is():
    forest = Forest()
    forest.apply([a_provider(number) for number in range(1, 5)])
    forest.snapshot()
    used, revisions = columns(forest)
    forest.apply([a_provider(2, used=3)])
    assert columns(forest)[0] is used
    assert columns(forest)[1] is revisions
    kept = forest.snapshot()
    forest.apply([a_provider(2, used=4)])
    copied = columns(forest)[0]
    assert copied is not columns(kept)[0]
    forest.apply([a_provider(2, used=5)])
    assert columns(forest)[0] is copied
    assert columns(kept)[0][1] == 3
    # A class that is unknown is looked for, and a look brings nothing new.
    kept = forest.snapshot()
    forest.apply([])
    assert forest.snapshot() is kept
    forest.apply([replace(a_provider(9), inventories=())])
    assert list(kept.column(77).free_of(kept.roots)) == [0, 0, 0, 0]
    assert 77 not in forest.inventories


def test_what_is_made_of_a_snapshot_stays_when_the_snapshot_is_gone():
    forest = Forest()
    forest.apply([a_provider(number) for number in range(1, 5)])
    copied = SimulatedForest(forest.snapshot())
    before = copied.providers.id.tolist(), columns(copied)[0].tolist()
    forest.apply([a_provider(2, used=9)])
    forest.remove(3)
    forest.apply([a_provider(7, used=1)])
    assert (copied.providers.id.tolist(), columns(copied)[0].tolist()) == before
    del copied
    # It is not looked at any more, so nothing is copied.
    forest.snapshot()
    used, _ = columns(forest)
    forest.apply([a_provider(2, used=3)])
    assert columns(forest)[0] is used


def test_simulations_of_one_forest_add_hosts_side_by_side():
    """The spare rows of their arrays are the same until one of them writes."""
    forest = Forest()
    forest.apply([replace(a_provider(number), trait_ids=frozenset({number + 6})) for number in (1, 2)])
    plain, marked = (SimulatedForest(forest.snapshot()) for _ in range(2))
    added = plain.repeat(int(forest.rows_of(np.array([1]))[0]), 2, lambda: None)
    other = marked.repeat(int(forest.rows_of(np.array([2]))[0]), 2, lambda: None)
    assert [plain.traits.of(row) for row in added] == [{7}, {7}]
    assert [marked.traits.of(row) for row in other] == [{8}, {8}]


def test_a_simulated_forest_is_gone_with_its_last_user():
    """A cycle would keep its copied columns until a full collection, and the next write would copy more."""
    world = World([NaiveProvider(str(UUID(int=1)), None, {"VCPU": Inventory(8)})])
    world.load()
    gc.disable()
    try:
        simulated = SimulatedForest(world.forest.snapshot())
        class_id = world.classes["VCPU"]
        simulated.take([Draw(int(simulated.roots[0]), class_id, 2)])
        assert simulated.free(int(simulated.roots[0]), class_id) == 6
        kept = weakref.ref(simulated)
        del simulated
        assert kept() is None
    finally:
        gc.enable()


_ANY = st.one_of(st.integers(0, 5), st.integers(0, 1100), st.integers(0, 2**63 - 1))


@given(st.lists(_ANY), st.booleans())
def test_every_number_is_written_as_it_is(given_numbers: list[int], wide: bool) -> None:
    column = np.array(given_numbers, object if wide else np.int64)
    assert [text.strip() for text in lines(numbers(column))] == [
        str(number).encode() for number in given_numbers
    ]


@given(st.lists(st.tuples(_ANY, _ANY), min_size=1))
def test_fractions_are_strings_without_a_space(pairs: list[tuple[int, int]]) -> None:
    above, below = np.array(pairs, np.int64).T
    assert [json.loads(text) for text in lines(fractions(above, below))] == [f"{a}/{b}" for a, b in pairs]


def test_texts_of_several_widths_stand_at_their_places() -> None:
    texts = ((b"abcd", 2), (b"xyz", 3))
    short, long = (np.frombuffer(text, np.uint8).reshape(-1, width) for text, width in texts)
    assert lines(assembled([(np.array([2, 0]), short), (np.array([1]), long)])) == [b"cd ", b"xyz", b"ab "]
    assert len(assembled([])) == 0
