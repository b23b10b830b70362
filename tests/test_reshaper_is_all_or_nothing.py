"""POST /reshaper: inventories and allocations move together, with the generation steps clients compare."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, unique


def inventories(
    api: Client, provider: str, *, generation: int | None = None, **records: Any
) -> dict[str, Any]:
    """The entry of one provider: totals or whole records, at its present generation."""
    if generation is None:
        generation = api.generation(provider)
    return {
        "resource_provider_generation": generation,
        "inventories": {
            name: record if isinstance(record, dict) else {"total": record}
            for name, record in records.items()
        },
    }


def reshape(api: Client, wanted: dict[str, Any], allocations: dict[str, Any] | None = None):
    return api.post("/reshaper", {"inventories": wanted, "allocations": allocations or {}})


class Scene:
    """A parent with VCPU, DISK_GB and a consumer on it, and an empty child."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.parent = api.provider(unique("parent"), VCPU=10, DISK_GB=100)
        self.child = api.provider(unique("child"), self.parent)
        self.consumer = str(uuid.uuid4())
        self.other = str(uuid.uuid4())
        assert api.claim({self.parent: {"VCPU": 4, "DISK_GB": 40}}, self.consumer).status_code == 204
        assert api.claim({self.parent: {"VCPU": 2}}, self.other).status_code == 204

    def state(self) -> Any:
        return [
            self.api.get(f"/resource_providers/{provider}/{what}").json
            for provider in (self.parent, self.child)
            for what in ("inventories", "usages", "allocations")
        ]

    def generations(self) -> tuple[int, int]:
        return self.api.generation(self.parent), self.api.generation(self.child)

    def move_down(self):
        allocations = {
            self.consumer: self.api.allocations({self.parent: {"DISK_GB": 40}, self.child: {"VCPU": 4}}, 1),
            self.other: self.api.allocations({self.child: {"VCPU": 2}}, 1),
        }
        wanted = {
            self.parent: inventories(self.api, self.parent, DISK_GB=100),
            self.child: inventories(self.api, self.child, VCPU=10),
        }
        return reshape(self.api, wanted, allocations)


@pytest.fixture
def scene(shared: Client) -> Scene:
    return Scene(shared)


def test_class_and_its_allocations_move_from_parent_to_child(scene: Scene):
    before = scene.generations()
    assert scene.move_down().status_code == 204
    assert scene.api.used(scene.parent) == {"DISK_GB": 40}
    assert scene.api.used(scene.child) == {"VCPU": 6}
    assert scene.api.used_by(scene.consumer) == {scene.parent: {"DISK_GB": 40}, scene.child: {"VCPU": 4}}
    assert scene.generations() == (before[0] + 3, before[1] + 3)
    assert scene.api.consumer_generation(scene.consumer) == 2
    assert scene.api.consumer_generation(scene.other) == 2


def test_moving_back_clears_one_consumer_and_creates_another(scene: Scene):
    assert scene.move_down().status_code == 204
    before = scene.generations()
    new = str(uuid.uuid4())
    allocations = {
        scene.consumer: scene.api.allocations({scene.parent: {"VCPU": 4, "DISK_GB": 40}}, 2),
        scene.other: scene.api.allocations({}, 2),
        new: scene.api.allocations({scene.parent: {"VCPU": 2}}, None),
    }
    wanted = {
        scene.parent: inventories(scene.api, scene.parent, VCPU=10, DISK_GB=100),
        scene.child: inventories(scene.api, scene.child),
    }
    assert reshape(scene.api, wanted, allocations).status_code == 204
    assert scene.generations() == (before[0] + 3, before[1] + 2)
    assert scene.api.used_by(scene.other) == {}
    assert scene.api.consumer_generation(new) == 1
    assert scene.api.used(scene.parent) == {"VCPU": 6, "DISK_GB": 40}


def test_same_records_again_raise_the_generation_by_two(scene: Scene):
    before, _ = scene.generations()
    wanted = {scene.parent: inventories(scene.api, scene.parent, VCPU=10, DISK_GB=100)}
    assert reshape(scene.api, wanted).status_code == 204
    assert scene.api.generation(scene.parent) == before + 2


def test_no_records_on_an_unused_provider_raise_the_generation_by_one(scene: Scene):
    _, before = scene.generations()
    assert reshape(scene.api, {scene.child: inventories(scene.api, scene.child)}).status_code == 204
    assert scene.api.generation(scene.child) == before + 1


def test_provider_named_by_allocations_only_keeps_its_records_and_rises_by_one(scene: Scene):
    before, _ = scene.generations()
    allocations = {scene.other: scene.api.allocations({scene.parent: {"VCPU": 3}}, 1)}
    wanted = {scene.child: inventories(scene.api, scene.child, VGPU=1)}
    assert reshape(scene.api, wanted, allocations).status_code == 204
    assert scene.api.generation(scene.parent) == before + 1
    assert scene.api.used(scene.parent) == {"VCPU": 7, "DISK_GB": 40}


def test_provider_that_is_only_left_keeps_its_generation(scene: Scene):
    elsewhere = scene.api.provider(unique("elsewhere"), VCPU=10)
    before, _ = scene.generations()
    allocations = {scene.other: scene.api.allocations({elsewhere: {"VCPU": 2}}, 1)}
    wanted = {scene.child: inventories(scene.api, scene.child)}
    assert reshape(scene.api, wanted, allocations).status_code == 204
    assert scene.api.generation(scene.parent) == before
    assert scene.api.used(scene.parent) == {"VCPU": 4, "DISK_GB": 40}


def test_dropping_an_unused_class_needs_no_allocations(scene: Scene):
    scene.api.offer(scene.child, VGPU=1, FPGA=1)
    assert reshape(scene.api, {scene.child: inventories(scene.api, scene.child, FPGA=1)}).status_code == 204
    assert scene.api.used(scene.child) == {"FPGA": 0}


def test_shrinking_below_the_use_of_others_is_allowed(scene: Scene):
    wanted = {scene.parent: inventories(scene.api, scene.parent, VCPU=3, DISK_GB=100)}
    assert reshape(scene.api, wanted).status_code == 204
    assert scene.api.used(scene.parent)["VCPU"] == 6


def test_failure_rolls_back_every_generation(scene: Scene):
    before = scene.generations()
    wanted = {
        scene.parent: inventories(scene.api, scene.parent, VCPU=20, DISK_GB=100),
        scene.child: inventories(scene.api, scene.child, VCPU=1),
    }
    too_much = {scene.consumer: scene.api.allocations({scene.child: {"VCPU": 4}}, 1)}
    assert reshape(scene.api, wanted, too_much).status_code == 409
    assert scene.generations() == before
    assert scene.api.consumer_generation(scene.consumer) == 1
    assert scene.move_down().status_code == 204


def test_search_sees_the_reshaped_providers(scene: Scene):
    resource_class = "SRIOV_NET_VF"
    assert (
        reshape(
            scene.api, {scene.child: inventories(scene.api, scene.child, **{resource_class: 3})}
        ).status_code
        == 204
    )
    answer = scene.api.get(f"/allocation_candidates?resources={resource_class}:3&in_tree={scene.child}")
    (found,) = answer.json["allocation_requests"]
    assert found["allocations"] == {scene.child: {"resources": {resource_class: 3}}}
