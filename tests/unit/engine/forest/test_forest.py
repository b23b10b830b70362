"""The forest's columns stay consistent under any sequence of changes."""

from __future__ import annotations

import uuid
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from placement.engine.forest.arrays import IdIndex, from_text, to_text
from placement.engine.forest.forest import Forest
from placement.engine.forest.memberships import Memberships
from placement.engine.forest.providers import InventoryRow, ProviderRecord, ProviderRow
from placement.engine.search.answer import summarise
from tests.forests import World
from tests.naive import NaiveProvider


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
            self.index.put(key, key * 2)
            self.model[key] = key * 2

    @rule(start=st.integers(0, 20_000), count=st.integers(1, 500))
    def forget(self, start, count):
        for key in range(start, start + count):
            self.index.put(key, -1)
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
    """What is kept of the trees by their version, such as who shares, must not outlive them."""
    world = World([NaiveProvider(str(uuid.UUID(int=number))) for number in range(1, 4)])
    for turn in range(9):
        before = world.forest.shape_version
        world.load()
        assert world.forest.shape_version > before
        for provider in world.providers:
            changed = replace(
                provider, traits=frozenset({"T", str(turn)}), aggregates=frozenset({"A", str(turn)})
            )
            world.traits.setdefault(str(turn), 100 + turn)
            world.traits.setdefault("T", 99)
            world.aggregates.setdefault(str(turn), 100 + turn)
            world.aggregates.setdefault("A", 99)
            world.forest.apply([world.record(changed, revision=turn + 2)])


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
        self.model[own] = {
            "uuid": str(uuid.UUID(int=own)),
            "parent": parent,
            "inventories": {},
            "traits": frozenset(),
        }
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
        for members, expected in zip(self.forest.members(rows), trees.values(), strict=True):
            assert [int(id_) for id_ in self.forest.providers.id[members]] == sorted(expected)
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
