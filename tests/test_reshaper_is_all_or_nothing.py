"""POST /reshaper: inventories and allocations move together, with the generation steps clients compare."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, code, detail, unique


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


@pytest.mark.parametrize(("version", "status"), [("1.29", 404), ("1.30", 400)])
def test_reshaper_exists_since_1_30(shared: Client, version: str, status: int):
    assert shared.at(version).post("/reshaper", {}).status_code == status


def test_reshaper_has_no_get(shared: Client):
    answer = shared.get("/reshaper")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


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


def test_dropping_a_class_in_use_is_refused(scene: Scene):
    before = scene.state()
    wanted = {scene.parent: inventories(scene.api, scene.parent, DISK_GB=100)}
    answer = reshape(scene.api, wanted)
    assert answer.status_code == 409
    assert code(answer) == "placement.inventory.inuse"
    assert detail(answer).startswith("update conflict: Inventory for 'VCPU' on resource provider")
    assert scene.state() == before


def test_dropping_an_unused_class_needs_no_allocations(scene: Scene):
    scene.api.offer(scene.child, VGPU=1, FPGA=1)
    assert reshape(scene.api, {scene.child: inventories(scene.api, scene.child, FPGA=1)}).status_code == 204
    assert scene.api.used(scene.child) == {"FPGA": 0}


def test_allocations_must_fit_the_new_records(scene: Scene):
    before = scene.state()
    wanted = {scene.child: inventories(scene.api, scene.child, VCPU=1)}
    allocations = {str(uuid.uuid4()): scene.api.allocations({scene.child: {"VCPU": 2}}, None)}
    answer = reshape(scene.api, wanted, allocations)
    assert answer.status_code == 409
    assert "Unable to allocate inventory: " in detail(answer)
    assert code(answer) == "placement.undefined_code"
    assert scene.state() == before


def test_units_of_the_new_records_count(scene: Scene):
    wanted = {scene.child: inventories(scene.api, scene.child, VCPU={"total": 8, "step_size": 2})}
    allocations = {str(uuid.uuid4()): scene.api.allocations({scene.child: {"VCPU": 3}}, None)}
    answer = reshape(scene.api, wanted, allocations)
    assert answer.status_code == 409
    assert "The requested amount would violate inventory constraints." in detail(answer)


def test_shrinking_below_the_use_of_others_is_allowed(scene: Scene):
    wanted = {scene.parent: inventories(scene.api, scene.parent, VCPU=3, DISK_GB=100)}
    assert reshape(scene.api, wanted).status_code == 204
    assert scene.api.used(scene.parent)["VCPU"] == 6


def test_resending_the_same_allocations_on_a_shrunk_provider_is_allowed(scene: Scene):
    wanted = {scene.parent: inventories(scene.api, scene.parent, VCPU=5, DISK_GB=100)}
    same = {scene.consumer: scene.api.allocations({scene.parent: {"VCPU": 4, "DISK_GB": 40}}, 1)}
    assert reshape(scene.api, wanted, same).status_code == 204


def test_growing_on_a_shrunk_provider_is_refused(scene: Scene):
    wanted = {scene.parent: inventories(scene.api, scene.parent, VCPU=5, DISK_GB=100)}
    more = {scene.consumer: scene.api.allocations({scene.parent: {"VCPU": 5, "DISK_GB": 40}}, 1)}
    assert reshape(scene.api, wanted, more).status_code == 409


def test_stale_provider_generation_is_named(scene: Scene):
    actual = scene.api.generation(scene.parent)
    wanted = {scene.parent: inventories(scene.api, scene.parent, generation=actual - 1, VCPU=10, DISK_GB=100)}
    answer = reshape(scene.api, wanted)
    assert answer.status_code == 409
    assert code(answer) == "placement.concurrent_update"
    assert detail(answer) == (
        f"resource provider generation conflict for provider {scene.parent}: "
        f"actual: {actual}, given: {actual - 1}"
    )


def test_stale_consumer_generation_is_refused(scene: Scene):
    wanted = {scene.child: inventories(scene.api, scene.child, VCPU=10)}
    stale = {scene.consumer: scene.api.allocations({scene.child: {"VCPU": 1}}, 7)}
    answer = reshape(scene.api, wanted, stale)
    assert answer.status_code == 409
    assert code(answer) == "placement.concurrent_update"
    assert "consumer generation conflict - expected 1 but got 7" in detail(answer)


def test_stale_provider_is_reported_before_stale_consumer(scene: Scene):
    wanted = {scene.child: inventories(scene.api, scene.child, generation=99)}
    stale = {scene.consumer: scene.api.allocations({scene.child: {"VCPU": 1}}, 7)}
    assert "resource provider generation conflict" in detail(reshape(scene.api, wanted, stale))


def test_unknown_provider_in_allocations_leaves_the_consumer_new(scene: Scene):
    unknown, new = str(uuid.uuid4()), str(uuid.uuid4())
    wanted = {scene.child: inventories(scene.api, scene.child, VCPU=10)}
    answer = reshape(scene.api, wanted, {new: scene.api.allocations({unknown: {"VCPU": 1}}, None)})
    assert answer.status_code == 400
    assert f"Allocation for resource provider '{unknown}' that does not exist." in detail(answer)
    assert scene.api.claim({scene.parent: {"VCPU": 1}}, new).status_code == 204


@pytest.mark.parametrize("where", ["inventories", "allocations"])
def test_unknown_class_is_malformed_data(scene: Scene, where: str):
    records = {"CUSTOM_NOBODY_KNOWS": 1} if where == "inventories" else {"VCPU": 1}
    amounts = {"CUSTOM_NOBODY_KNOWS": 1} if where == "allocations" else {"VCPU": 1}
    wanted = {scene.child: inventories(scene.api, scene.child, **records)}
    allocations = {str(uuid.uuid4()): scene.api.allocations({scene.child: amounts}, None)}
    answer = reshape(scene.api, wanted, allocations)
    assert answer.status_code == 400
    assert detail(answer) == "malformed reshaper data: No such resource class CUSTOM_NOBODY_KNOWS."


def test_reserved_beyond_total_is_refused(scene: Scene):
    wanted = {scene.child: inventories(scene.api, scene.child, VCPU={"total": 4, "reserved": 5})}
    answer = reshape(scene.api, wanted)
    assert answer.status_code == 400
    assert "greater than total" in detail(answer)


@pytest.mark.one_database
def test_unknown_field_of_a_record_is_named(scene: Scene):
    record = {"total": 1, "bad_field": True}
    answer = reshape(scene.api, {scene.child: inventories(scene.api, scene.child, VCPU=record)})
    assert answer.status_code == 400
    assert "'bad_field' was unexpected" in detail(answer)


@pytest.mark.one_database
def test_no_inventories_at_all_is_refused(shared: Client):
    answer = reshape(shared, {})
    assert answer.status_code == 400
    assert "JSON does not validate: {} should be non-empty" in detail(answer)


@pytest.mark.one_database
def test_allocations_key_is_required(scene: Scene):
    body = {"inventories": {scene.child: inventories(scene.api, scene.child)}}
    answer = scene.api.post("/reshaper", body)
    assert answer.status_code == 400
    assert "'allocations' is a required property" in detail(answer)


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


@pytest.mark.parametrize(("version", "status"), [("1.33", 400), ("1.34", 204)])
def test_mappings_are_taken_since_1_34(scene: Scene, version: str, status: int):
    entry = scene.api.allocations({scene.parent: {"VCPU": 1}}, None)
    del entry["consumer_type"]
    entry["mappings"] = {"": [scene.parent], "_A": [scene.parent]}
    wanted = {scene.child: inventories(scene.api, scene.child)}
    assert reshape(scene.api.at(version), wanted, {str(uuid.uuid4()): entry}).status_code == status


@pytest.mark.parametrize(
    ("version", "with_type", "status"),
    [("1.37", False, 204), ("1.37", True, 400), ("1.38", False, 400), ("1.38", True, 204)],
)
def test_consumer_type_is_required_since_1_38(scene: Scene, version: str, with_type: bool, status: int):
    entry = scene.api.allocations({scene.parent: {"VCPU": 1}}, None)
    if not with_type:
        del entry["consumer_type"]
    wanted = {scene.child: inventories(scene.api, scene.child)}
    assert reshape(scene.api.at(version), wanted, {str(uuid.uuid4()): entry}).status_code == status


@pytest.mark.one_database
def test_consumer_key_must_be_a_uuid(scene: Scene):
    wanted = {scene.child: inventories(scene.api, scene.child)}
    answer = reshape(scene.api, wanted, {"-" * 36: scene.api.allocations({scene.parent: {"VCPU": 1}})})
    assert answer.status_code == 400


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
