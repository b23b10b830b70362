"""GET, PUT and DELETE /allocations/{consumer}. Source: placement-api.md, "Allocations of a consumer"."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, detail, unique

NOBODY = "00000000-0000-0000-0000-000000000000"


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


def test_old_writes_relabel_to_the_placeholder(shared: Client, provider: str, consumer: str):
    for version in ("1.0", "1.39", "1.7"):
        content = body(version, {provider: {"VCPU": 1}}, 1)
        assert put(shared, consumer, content, version).status_code == 204, version
        found = shared.at("1.12").get(f"/allocations/{consumer}").json
        labels = ("project", "user") if version == "1.39" else (NOBODY, NOBODY)
        assert (found["project_id"], found["user_id"]) == labels, version


def test_last_entry_of_a_provider_counts_in_list_form(shared: Client, provider: str, consumer: str):
    content = body("1.0", {provider: {"VCPU": 1}})
    content["allocations"].append({"resource_provider": {"uuid": provider}, "resources": {"DISK_GB": 3}})
    assert put(shared, consumer, content, "1.0").status_code == 204
    assert shared.used_by(consumer) == {provider: {"DISK_GB": 3}}


def test_what_a_body_may_say(shared: Client, provider: str, consumer: str):
    """Labels are free text, an integer may have a fraction, an entry a generation, a consumer no dashes."""
    labels = {"project_id": " ", "user_id": "\N{SNOWMAN} ; DROP TABLE users"}
    content = body("1.39", {provider: {"VCPU": 2.0}}, **labels)
    content["allocations"][provider]["generation"] = 77
    assert put(shared, consumer.replace("-", "").upper(), content).status_code == 204
    found = shared.get(f"/allocations/{consumer}").json
    assert {key: found[key] for key in labels} == labels
    assert shared.used_by(consumer) == {provider: {"VCPU": 2}}


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
    for who in (consumer, "junk"):
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


def test_what_get_shows_put_takes(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 2}}))
    for version in ("1.12", "1.28", "1.38", "1.39"):
        shown = shared.at(version).get(f"/allocations/{consumer}").json
        assert put(shared, consumer, shown, version).status_code == 204, version
        assert shared.used_by(consumer) == {provider: {"VCPU": 2}}, version


# -- generations and labels of consumers -----------------------------------------------------------------


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


def test_failed_first_write_leaves_the_consumer_new(shared: Client, provider: str, consumer: str):
    for wrong in (
        {provider: {"VCPU": 11}},
        {provider: {"CUSTOM_NOBODY": 1}},
        {str(uuid.uuid4()): {"VCPU": 1}},
    ):
        assert put(shared, consumer, body("1.39", wrong)).status_code in (400, 409), wrong
    # Clearing nothing does nothing.
    assert put(shared, consumer, body("1.39", {})).status_code == 204
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, None)).status_code == 204


def test_labels_change_with_the_write_and_stay_when_it_fails(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}))
    before = shared.get(f"/allocations/{consumer}").json
    new = {"project_id": "p2", "user_id": "u2", "consumer_type": "MIGRATION"}
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 99}}, 1, **new)).status_code == 409
    assert shared.get(f"/allocations/{consumer}").json == before
    assert put(shared, consumer, body("1.39", {provider: {"VCPU": 1}}, 1, **new)).status_code == 204
    found = shared.get(f"/allocations/{consumer}").json
    assert {key: found[key] for key in new} == new
    assert found["consumer_generation"] == 2


def test_older_write_keeps_the_type_and_unset_is_unknown(shared: Client, provider: str, consumer: str):
    put(shared, consumer, body("1.37", {provider: {"VCPU": 1}}), "1.37")
    assert shared.get(f"/allocations/{consumer}").json["consumer_type"] == "unknown"
    put(shared, consumer, body("1.38", {provider: {"VCPU": 1}}, 1), "1.38")
    put(shared, consumer, body("1.37", {provider: {"VCPU": 1}}, 2), "1.37")
    assert shared.get(f"/allocations/{consumer}").json["consumer_type"] == "INSTANCE"
