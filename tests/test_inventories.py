"""Inventories and usages of a provider. Source: placement-api.md, "Inventories", "Provider usages"."""

from __future__ import annotations

import pytest

from tests.client import Client, custom, detail, unique

MAX_INT = 2147483647
DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": MAX_INT, "step_size": 1, "allocation_ratio": 1.0}


def path(provider: str, resource_class: str = "") -> str:
    return f"/resource_providers/{provider}/inventories" + (f"/{resource_class}" if resource_class else "")


def put_all(api: Client, provider: str, generation: int | None = None, **records: object):
    guard = api.generation(provider) if generation is None else generation
    body = {"resource_provider_generation": guard, "inventories": records}
    return api.put(path(provider), body)


def put_one(api: Client, provider: str, name: str, generation: int | None = None, **record: object):
    guard = api.generation(provider) if generation is None else generation
    return api.put(path(provider, name), {"resource_provider_generation": guard, **record})


def post(api: Client, provider: str, name: str = "VCPU", **record: object):
    return api.post(path(provider), {"resource_class": name, **record})


@pytest.fixture
def provider(shared: Client) -> str:
    return shared.provider(unique())


@pytest.fixture
def busy(shared: Client) -> str:
    """A provider with 4 of 10 VCPU and 40 of 100 DISK_GB in use, and idle memory."""
    own = shared.provider(unique(), DISK_GB=100, VCPU=10, MEMORY_MB=50)
    assert shared.claim({own: {"VCPU": 4, "DISK_GB": 40}}).status_code == 204
    return own


def test_new_provider_has_none(shared: Client, provider: str):
    answer = shared.get(path(provider))
    assert answer.json == {"resource_provider_generation": 0, "inventories": {}}
    assert answer.headers["Cache-Control"] == "no-cache"
    assert "Last-Modified" in answer.headers


def test_post_fills_in_the_defaults(shared: Client, provider: str):
    answer = post(shared, provider, total=16)
    assert answer.status_code == 201
    assert answer.json == {"total": 16, **DEFAULTS, "resource_provider_generation": 1}
    assert answer.headers["Location"] == f"http://localhost{path(provider, 'VCPU')}"
    assert shared.get(path(provider, "VCPU")).json == answer.json


def test_number_without_a_fraction_is_an_integer_and_generations_of_records_are_ignored(
    shared: Client, provider: str
):
    assert post(shared, provider, total=10.0, resource_provider_generation=77).json["total"] == 10
    record = {"total": 1, "resource_provider_generation": 77}
    assert put_all(shared, provider, VCPU=record).status_code == 200


def test_largest_ratio_does_not_break_the_search(shared: Client):
    name = custom()
    shared.put(f"/resource_classes/{name}")
    own = shared.provider(unique(), **{name: {"total": MAX_INT, "allocation_ratio": 3.4e38}})
    found = shared.get(f"/allocation_candidates?resources={name}:5")
    assert found.status_code == 200
    assert list(found.json["provider_summaries"]) == [own]
    assert shared.claim({own: {name: 7}}).status_code == 204


@pytest.mark.parametrize(
    ("version", "record", "message"),
    [
        ("1.25", {"total": 5, "reserved": 5}, "greater than or equal to total"),
        ("1.26", {"total": 5, "reserved": 5}, None),
        ("1.25", {"total": 5, "allocation_ratio": 0.1}, "greater than or equal to total"),
        ("1.26", {"total": 5, "allocation_ratio": 0.1}, None),
        ("1.25", {"total": 5, "reserved": 6}, "greater than or equal to total"),
        ("1.26", {"total": 5, "reserved": 6}, "greater than total"),
    ],
)
def test_capacity_may_be_zero_since_1_26_but_never_negative(
    shared: Client, version: str, record: dict, message: str | None
):
    api = shared.at(version)
    one, two, three = (shared.provider(unique()) for _ in range(3))
    shared.offer(two, VCPU=1)
    answers = [
        post(api, one, **record),
        put_one(api, two, "VCPU", **record),
        put_all(api, three, VCPU=record),
    ]
    for answer in answers:
        assert answer.status_code == (400 if message else 201 if answer is answers[0] else 200)
        if message:
            assert message in detail(answer)
    if message:
        assert detail(answers[0]).startswith("Unable to create inventory for resource provider ")
        assert detail(answers[1]).startswith("Unable to update inventory for resource provider ")


def test_put_one_resets_what_is_left_out(shared: Client, provider: str):
    post(shared, provider, total=10, reserved=2, max_unit=5, allocation_ratio=2.0)
    answer = put_one(shared, provider, "VCPU", total=20)
    assert answer.status_code == 200
    assert answer.json == {"total": 20, **DEFAULTS, "resource_provider_generation": 2}


def test_put_all_adds_updates_and_deletes(shared: Client, provider: str):
    shared.offer(provider, VCPU=1, DISK_GB=2)
    answer = put_all(shared, provider, DISK_GB={"total": 3}, VGPU={"total": 4})
    assert answer.status_code == 200
    assert answer.json == {
        "resource_provider_generation": 2,
        "inventories": {"DISK_GB": {"total": 3, **DEFAULTS}, "VGPU": {"total": 4, **DEFAULTS}},
    }
    assert shared.get(path(provider)).json == answer.json


def test_writing_and_deleting_all_raises_the_generation_even_if_nothing_differs(
    shared: Client, provider: str
):
    for expected, records in enumerate(({"VCPU": {"total": 1}}, {"VCPU": {"total": 1}}, {}, {}), start=1):
        answer = put_all(shared, provider, **records)
        assert answer.json["resource_provider_generation"] == expected
    assert shared.delete(path(provider)).status_code == 204
    assert shared.generation(provider) == 5


def test_shrinking_below_the_use_is_allowed(shared: Client, busy: str):
    assert put_one(shared, busy, "VCPU", total=2).status_code == 200
    records = {"VCPU": {"total": 1}, "DISK_GB": {"total": 1}}
    assert put_all(shared, busy, **records).status_code == 200
    assert shared.used(busy) == {"VCPU": 4, "DISK_GB": 40}


def test_delete_one_removes_a_record_once(shared: Client, busy: str):
    before = shared.generation(busy)
    assert shared.delete(path(busy, "MEMORY_MB")).status_code == 204
    assert shared.generation(busy) == before + 1
    answer = shared.delete(path(busy, "MEMORY_MB"))
    assert answer.status_code == 404
    assert detail(answer) == "No inventory of class MEMORY_MB found for delete"
    assert shared.delete(path(busy, "CUSTOM_NOBODY")).status_code == 404


def test_delete_all_exists_since_1_5(shared: Client, provider: str):
    shared.offer(provider, VCPU=1)
    answer = shared.at("1.4").delete(path(provider))
    assert answer.status_code == 405
    assert "Allow" not in answer.headers
    assert shared.at("1.5").delete(path(provider)).status_code == 204
    assert shared.get(path(provider)).json == {"resource_provider_generation": 2, "inventories": {}}


def test_usages_list_every_record_also_the_unused(shared: Client, busy: str, provider: str):
    assert shared.get(f"/resource_providers/{provider}/usages").json["usages"] == {}
    answer = shared.get(f"/resource_providers/{busy}/usages")
    assert answer.json == {
        "resource_provider_generation": 2,
        "usages": {"VCPU": 4, "MEMORY_MB": 0, "DISK_GB": 40},
    }
