"""GET, PUT and DELETE /allocations/{consumer}. Source: placement-api.md, "Allocations of a consumer"."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, code, detail, unique

NOBODY = "00000000-0000-0000-0000-000000000000"
CONSTRAINTS = "The requested amount would violate inventory constraints."
CAPACITY = "The requested amount would exceed the capacity."


def minor(version: str) -> int:
    return int(version.split(".")[1])


def body(version: str, allocations: dict[str, Any], generation: int | None = None, **labels: Any) -> Any:
    """A complete body of the version; labels replace or add keys."""
    if minor(version) < 12:
        entries: Any = [
            {"resource_provider": {"uuid": provider}, "resources": amounts}
            for provider, amounts in allocations.items()
        ]
    else:
        entries = {provider: {"resources": amounts} for provider, amounts in allocations.items()}
    found = {"allocations": entries}
    if minor(version) >= 8:
        found |= {"project_id": "project", "user_id": "user"}
    if minor(version) >= 28:
        found["consumer_generation"] = generation
    if minor(version) >= 38:
        found["consumer_type"] = "INSTANCE"
    return found | labels


def put(api: Client, consumer: str, content: Any, version: str = "1.39"):
    return api.at(version).put(f"/allocations/{consumer}", content)


@pytest.fixture
def provider(shared: Client) -> str:
    return shared.provider(unique(), VCPU=10, DISK_GB=100)


@pytest.fixture
def other(shared: Client) -> str:
    return shared.provider(unique(), VCPU=10)


@pytest.fixture
def consumer() -> str:
    return str(uuid.uuid4())


# -- forms of the body -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version", ["1.0", "1.7", "1.8", "1.11", "1.12", "1.27", "1.28", "1.37", "1.38", "1.39"]
)
def test_every_version_has_its_form(shared: Client, provider: str, consumer: str, version: str):
    answer = put(shared, consumer, body(version, {provider: {"VCPU": 2}}), version)
    assert answer.status_code == 204, answer.text
    assert "Last-Modified" not in answer.headers
    assert shared.used_by(consumer) == {provider: {"VCPU": 2}}


def test_list_form_without_a_project_gets_the_placeholder(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.0", {provider: {"VCPU": 1}}), "1.0")
    found = shared.at("1.12").get(f"/allocations/{consumer}").json
    assert found["project_id"] == found["user_id"] == NOBODY


def test_old_write_relabels_to_the_placeholder(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    put(shared, consumer, body("1.7", {provider: {"VCPU": 1}}), "1.7")
    assert shared.get(f"/allocations/{consumer}").json["project_id"] == NOBODY


def test_last_entry_of_a_provider_counts_in_list_form(shared: Client, provider: str, consumer: str):
    content = body("1.0", {provider: {"VCPU": 1}})
    content["allocations"].append({"resource_provider": {"uuid": provider}, "resources": {"DISK_GB": 3}})
    assert put(shared, consumer, content, "1.0").status_code == 204
    assert shared.used_by(consumer) == {provider: {"DISK_GB": 3}}


@pytest.mark.one_database
@pytest.mark.parametrize("key", ["project_id", "user_id"])
def test_labels_are_required_since_1_8_and_unknown_before(
    shared: Client, provider: str, consumer: str, key: str
):
    content = body("1.8", {provider: {"VCPU": 1}})
    assert f"'{key}' was unexpected" in detail(
        put(shared, consumer, body("1.0", {provider: {"VCPU": 1}}, **{key: "x"}), "1.7")
    )
    del content[key]
    answer = put(shared, consumer, content, "1.8")
    assert answer.status_code == 400
    assert f"'{key}' is a required property" in detail(answer)


@pytest.mark.one_database
@pytest.mark.parametrize("key", ["project_id", "user_id"])
@pytest.mark.parametrize(
    ("value", "keyword"), [("", "minLength"), ("x" * 256, "maxLength"), (5, "type"), (None, "type")]
)
def test_labels_have_1_to_255_characters(
    shared: Client, provider: str, consumer: str, key: str, value: object, keyword: str
):
    for version in ("1.8", "1.12", "1.39"):
        answer = put(shared, consumer, body(version, {provider: {"VCPU": 1}}, **{key: value}), version)
        assert answer.status_code == 400
        assert f"Failed validating '{keyword}' in schema['properties']['{key}']" in detail(answer)


def test_labels_are_free_text(shared: Client, provider: str, consumer: str):
    labels = {"project_id": " ", "user_id": "\N{SNOWMAN} ; DROP TABLE users"}
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, **labels)).status_code == 204
    found = shared.get(f"/allocations/{consumer}").json
    assert {key: found[key] for key in labels} == labels


@pytest.mark.one_database
def test_forms_do_not_mix(shared: Client, provider: str, consumer: str):
    listed = body("1.11", {provider: {"VCPU": 1}})
    mapped = body("1.12", {provider: {"VCPU": 1}})
    assert "JSON does not validate" in detail(put(shared, consumer, listed, "1.12"))
    assert "JSON does not validate" in detail(put(shared, consumer, mapped, "1.11"))


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("allocations", "message"),
    [
        ({"x": {"VCPU": 1}}, "'x' does not match any of the regexes: '^[0-9a-fA-F-]{36}$'"),
        ({"P": {"vcpu": 1}}, "'vcpu' does not match any of the regexes: '^[A-Z0-9_]+$'"),
        ({"P": {}}, "{} should be non-empty"),
        ({"P": {"VCPU": 0}}, "0 is less than the minimum of 1"),
        ({"P": {"VCPU": -1}}, "-1 is less than the minimum of 1"),
        ({"P": {"VCPU": "1"}}, "'1' is not of type 'integer'"),
        ({"P": {"VCPU": 1.5}}, "1.5 is not of type 'integer'"),
        ({"P": {"VCPU": True}}, "True is not of type 'integer'"),
    ],
)
def test_bad_allocations_are_400(
    shared: Client, provider: str, consumer: str, allocations: dict, message: str
):
    named = {provider if key == "P" else key: amounts for key, amounts in allocations.items()}
    answer = put(shared, consumer, body("1.39", named))
    assert answer.status_code == 400
    assert message in detail(answer)


@pytest.mark.one_database
def test_resources_are_required_and_other_keys_unknown(shared: Client, provider: str, consumer: str):
    content = body("1.39", {provider: {"VCPU": 1}})
    content["allocations"][provider] = {}
    assert "'resources' is a required property" in detail(put(shared, consumer, content))
    content["allocations"][provider] = {"resources": {"VCPU": 1}, "extra": 1}
    assert "'extra' was unexpected" in detail(put(shared, consumer, content))
    assert "'extra' was unexpected" in detail(
        put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, extra=1))
    )


def test_generation_of_a_provider_entry_is_ignored(shared: Client, provider: str, consumer: str):
    content = body("1.12", {provider: {"VCPU": 1}})
    content["allocations"][provider]["generation"] = 77
    assert put(shared, consumer, content, "1.12").status_code == 204


def test_number_without_a_fraction_is_an_amount(shared: Client, provider: str, consumer: str):
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 2.0}})).status_code == 204


@pytest.mark.parametrize(("version", "status"), [("1.12", 400), ("1.27", 400), ("1.28", 204)])
def test_empty_allocations_exist_since_1_28(
    shared: Client, provider: str, consumer: str, version: str, status: int
):
    put(shared, consumer, body("1.27", {provider: {"VCPU": 1}}), "1.27")
    assert put(shared, consumer, body(version, {}, 1), version).status_code == status


@pytest.mark.parametrize(("version", "status"), [("1.33", 400), ("1.34", 204)])
def test_mappings_are_taken_since_1_34(
    shared: Client, provider: str, consumer: str, version: str, status: int
):
    content = body(version, {provider: {"VCPU": 1}}, mappings={"": ["anything"], "_A": [provider]})
    answer = put(shared, consumer, content, version)
    assert answer.status_code == status
    if status == 400:
        assert "Additional properties are not allowed" in detail(answer)


@pytest.mark.one_database
@pytest.mark.parametrize("mappings", [{}, [], {"1": []}, {"1": ["x"]}, {"1": "x"}])
def test_bad_mappings_are_400(shared: Client, provider: str, consumer: str, mappings: object):
    answer = put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, mappings=mappings))
    assert answer.status_code == 400
    assert "JSON does not validate" in detail(answer)


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize("bad", ["junk", "1", "-" * 36, "not-a-uuid-but-36-characters-long-xx"])
def test_consumer_must_be_a_uuid(shared: Client, bad: str):
    answer = put(shared, bad, {"bad": "body"})
    assert answer.status_code == 400
    assert detail(answer) == f"Malformed consumer_uuid: {bad}"


def test_undashed_consumer_is_the_dashed_one(shared: Client, provider: str, consumer: str):
    put(shared, consumer.replace("-", "").upper(), body("1.39", {provider: {"VCPU": 1}}))
    assert shared.used_by(consumer) == {provider: {"VCPU": 1}}


def test_unknown_class_is_400(shared: Client, provider: str, consumer: str):
    answer = put(shared, consumer, body("1.39", {provider: {"CUSTOM_NOBODY": 1}}))
    assert answer.status_code == 400
    assert detail(answer) == (
        f"Unable to allocate inventory for consumer {consumer}: No such resource class CUSTOM_NOBODY."
    )


def test_class_without_an_inventory_is_409(shared: Client, provider: str, consumer: str):
    answer = put(shared, consumer, body("1.39", {provider: {"PCI_DEVICE": 1}}))
    assert answer.status_code == 409
    assert code(answer) == "placement.undefined_code"
    assert detail(answer) == (
        f"Unable to allocate inventory: Inventory for 'PCI_DEVICE' on resource provider '{provider}' invalid."
        " It has no inventory of PCI_DEVICE."
    )


def test_provider_without_inventories_is_409(shared: Client, consumer: str):
    empty = shared.provider(unique())
    answer = put(shared, consumer, body("1.39", {empty: {"VCPU": 1, "DISK_GB": 1}}))
    assert answer.status_code == 409
    assert "Inventory for 'VCPU, DISK_GB' on resource provider" in detail(answer)


@pytest.mark.parametrize(
    ("amount", "message"),
    [(1, CONSTRAINTS), (9, CONSTRAINTS), (5, CONSTRAINTS), (2**70, CONSTRAINTS), (10**30, CONSTRAINTS)],
)
def test_units_are_respected(shared: Client, consumer: str, amount: int, message: str):
    own = shared.provider(unique(), VCPU={"total": 100, "min_unit": 2, "max_unit": 8, "step_size": 2})
    answer = put(shared, consumer, body("1.39", {own: {"VCPU": amount}}))
    assert answer.status_code == 409
    assert detail(answer).startswith("Unable to allocate inventory: ")
    assert message in detail(answer)
    for fits in (2, 8):
        assert put(shared, str(uuid.uuid4()), body("1.39", {own: {"VCPU": fits}})).status_code == 204


def test_capacity_counts_reserved_and_ratio(shared: Client):
    own = shared.provider(
        unique(), VCPU={"total": 4, "allocation_ratio": 1.3}, DISK_GB={"total": 10, "reserved": 4}
    )
    assert put(shared, str(uuid.uuid4()), body("1.39", {own: {"VCPU": 5, "DISK_GB": 6}})).status_code == 204
    for name in ("VCPU", "DISK_GB"):
        answer = put(shared, str(uuid.uuid4()), body("1.39", {own: {name: 1}}))
        assert answer.status_code == 409
        assert CAPACITY in detail(answer)
        assert code(answer) == "placement.undefined_code"


@pytest.mark.parametrize(("amount", "status"), [(5, 204), (6, 204), (7, 409)])
def test_over_committed_class_may_not_get_worse(shared: Client, consumer: str, amount: int, status: int):
    own = shared.provider(unique(), VCPU=10)
    put(shared, consumer, body("1.39", {own: {"VCPU": 6}}))
    shared.offer(own, VCPU=4)
    assert put(shared, consumer, body("1.39", {own: {"VCPU": amount}}, 1)).status_code == status


def test_over_committed_class_still_respects_units(shared: Client, consumer: str):
    own = shared.provider(unique(), VCPU=10)
    put(shared, consumer, body("1.39", {own: {"VCPU": 6}}))
    shared.offer(own, VCPU={"total": 4, "max_unit": 3})
    answer = put(shared, consumer, body("1.39", {own: {"VCPU": 6}}, 1))
    assert answer.status_code == 409
    assert CONSTRAINTS in detail(answer)


# -- what is written -------------------------------------------------------------------------------------


def test_put_replaces_everything_and_raises_only_named_providers(
    shared: Client, provider: str, other: str, consumer: str
):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 2, "DISK_GB": 5}}))
    before = shared.generation(provider), shared.generation(other)
    assert put(shared, consumer, body("1.39", {other: {"VCPU": 3}}, 1)).status_code == 204
    assert shared.used_by(consumer) == {other: {"VCPU": 3}}
    assert shared.used(provider) == {"VCPU": 0, "DISK_GB": 0}
    assert (shared.generation(provider), shared.generation(other)) == (before[0], before[1] + 1)


def test_delete_releases_once_and_leaves_generations(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 2}}))
    before = shared.generation(provider)
    assert shared.delete(f"/allocations/{consumer}").status_code == 204
    assert shared.used(provider)["VCPU"] == 0
    assert shared.generation(provider) == before
    answer = shared.delete(f"/allocations/{consumer}")
    assert answer.status_code == 404
    assert detail(answer) == f"No allocations for consumer '{consumer}'"
    assert detail(shared.delete("/allocations/junk")) == "No allocations for consumer 'junk'"


@pytest.mark.parametrize("who", ["00000000-1111-2222-3333-444444444444", "junk"])
def test_unknown_consumer_holds_nothing(shared: Client, who: str):
    assert shared.get(f"/allocations/{who}").json == {"allocations": {}}


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("1.11", set()),
        ("1.12", {"project_id", "user_id"}),
        ("1.27", {"project_id", "user_id"}),
        ("1.28", {"project_id", "user_id", "consumer_generation"}),
        ("1.37", {"project_id", "user_id", "consumer_generation"}),
        ("1.38", {"project_id", "user_id", "consumer_generation", "consumer_type"}),
    ],
)
def test_keys_shown_grow_with_the_version(
    shared: Client, provider: str, consumer: str, version: str, keys: set[str]
):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 2}}))
    found = shared.at(version).get(f"/allocations/{consumer}").json
    assert found.keys() - {"allocations"} == keys
    generation = shared.generation(provider)
    assert found["allocations"] == {provider: {"resources": {"VCPU": 2}, "generation": generation}}


@pytest.mark.parametrize("version", ["1.12", "1.28", "1.38", "1.39"])
def test_what_get_shows_put_takes(shared: Client, provider: str, consumer: str, version: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 2}}))
    shown = shared.at(version).get(f"/allocations/{consumer}").json
    assert put(shared, consumer, shown, version).status_code == 204
    assert shared.used_by(consumer) == {provider: {"VCPU": 2}}


# -- generations and labels of consumers -----------------------------------------------------------------


def test_consumer_generation_is_required_since_1_28(shared: Client, provider: str, consumer: str):
    content = body("1.28", {provider: {"VCPU": 1}})
    del content["consumer_generation"]
    assert "'consumer_generation' is a required property" in detail(put(shared, consumer, content, "1.28"))
    unknown = body("1.27", {provider: {"VCPU": 1}}, consumer_generation=None)
    assert "'consumer_generation' was unexpected" in detail(put(shared, consumer, unknown, "1.27"))


@pytest.mark.parametrize(
    ("exists", "given", "message"),
    [
        (False, None, None),
        (False, 5, "consumer generation conflict - expected null but got 5"),
        (True, 1, None),
        (True, 1.0, None),
        (True, None, "consumer generation conflict - expected 1 but got None"),
        (True, 3, "consumer generation conflict - expected 1 but got 3"),
        (True, 10**30, "consumer generation conflict - expected 1 but got"),
    ],
)
def test_consumer_generation_guards(
    shared: Client, provider: str, consumer: str, exists: bool, given: object, message: str | None
):
    if exists:
        put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    answer = put(shared, consumer, body("1.39", {provider: {"VCPU": 2}}, given))
    assert answer.status_code == (409 if message else 204)
    if message:
        assert message in detail(answer)
        assert code(answer) == "placement.concurrent_update"
    else:
        assert shared.consumer_generation(consumer) == (2 if exists else 1)


def test_stale_consumer_is_reported_before_a_missing_provider(shared: Client, consumer: str):
    answer = put(shared, consumer, body("1.39", {str(uuid.uuid4()): {"VCPU": 1}}, 5))
    assert answer.status_code == 409


def test_old_writes_raise_the_consumer_generation(shared: Client, provider: str, consumer: str):
    for expected in (1, 2):
        put(shared, consumer, body("1.27", {provider: {"VCPU": 1}}), "1.27")
        assert shared.consumer_generation(consumer) == expected


def test_clearing_ends_the_consumer_and_raises_its_providers(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    before = shared.generation(provider)
    assert put(shared, consumer, body("1.39", {}, 1)).status_code == 204
    assert shared.generation(provider) == before + 1
    assert shared.get(f"/allocations/{consumer}").json == {"allocations": {}}
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, None)).status_code == 204


@pytest.mark.parametrize("failure", ["capacity", "class", "provider", "clearing nothing"])
def test_failed_first_write_leaves_the_consumer_new(
    shared: Client, provider: str, consumer: str, failure: str
):
    allocations: dict[str, Any] = {
        "capacity": {provider: {"VCPU": 11}},
        "class": {provider: {"CUSTOM_NOBODY": 1}},
        "provider": {str(uuid.uuid4()): {"VCPU": 1}},
        "clearing nothing": {},
    }[failure]
    put(shared, consumer, body("1.39", allocations))
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, None)).status_code == 204


def test_labels_change_with_the_write_and_once(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    new = {"project_id": "p2", "user_id": "u2", "consumer_type": "MIGRATION"}
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, 1, **new)).status_code == 204
    found = shared.get(f"/allocations/{consumer}").json
    assert {key: found[key] for key in new} == new
    assert found["consumer_generation"] == 2


def test_labels_stay_when_the_write_fails(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    before = shared.get(f"/allocations/{consumer}").json
    new = {"project_id": "p2", "user_id": "u2", "consumer_type": "MIGRATION"}
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 99}}, 1, **new)).status_code == 409
    assert shared.get(f"/allocations/{consumer}").json == before


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("value", "keyword"),
    [("instance", "pattern"), ("", "pattern"), ("X" * 256, "maxLength"), (None, "type")],
)
def test_consumer_type_is_a_name(shared: Client, provider: str, consumer: str, value: object, keyword: str):
    answer = put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, consumer_type=value))
    assert answer.status_code == 400
    assert f"Failed validating '{keyword}' in schema['properties']['consumer_type']" in detail(answer)


def test_consumer_type_is_required_since_1_38_and_unknown_before(
    shared: Client, provider: str, consumer: str
):
    content = body("1.39", {provider: {"VCPU": 1}})
    assert "'consumer_type' was unexpected" in detail(put(shared, consumer, content, "1.37"))
    del content["consumer_type"]
    assert "'consumer_type' is a required property" in detail(put(shared, consumer, content, "1.38"))


def test_older_write_keeps_the_type_and_unset_is_unknown(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.37", {provider: {"VCPU": 1}}), "1.37")
    assert shared.get(f"/allocations/{consumer}").json["consumer_type"] == "unknown"
    put(shared, consumer, body("1.38", {provider: {"VCPU": 1}}, 1), "1.38")
    put(shared, consumer, body("1.37", {provider: {"VCPU": 1}}, 2), "1.37")
    assert shared.get(f"/allocations/{consumer}").json["consumer_type"] == "INSTANCE"


@pytest.mark.one_database
@pytest.mark.parametrize(("version", "cached"), [("1.14", False), ("1.15", True)])
def test_reads_have_caching_headers_since_1_15(
    shared: Client, provider: str, consumer: str, version: str, cached: bool
):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    for path in (
        f"/allocations/{consumer}",
        "/allocations/junk",
        f"/resource_providers/{provider}/allocations",
    ):
        assert ("Last-Modified" in shared.at(version).get(path).headers) is cached
