"""POST /allocations, and what providers and projects have in use.

Source: placement-api.md, "POST /allocations atomicity", "Provider usages", "Usages by project".
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, detail, unique

CAPACITY = "The requested amount would exceed the capacity."


@pytest.fixture
def provider(shared: Client) -> str:
    return shared.provider(unique(), VCPU=10)


def consumers(count: int = 2) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def entry(version: str, resources: dict[str, Any], generation: int | None = None, **labels: Any) -> Any:
    found = Client.allocations(resources, generation, **labels)
    if int(version.split(".")[1]) < 38:
        del found["consumer_type"]
    if int(version.split(".")[1]) < 28:
        del found["consumer_generation"]
    return found


@pytest.mark.one_database
def test_one_consumer_in_two_spellings_is_400(shared: Client, provider: str):
    (one,) = consumers(1)
    content = {who: entry("1.39", {provider: {"VCPU": 1}}) for who in (one, one.upper())}
    assert shared.post("/allocations", content).status_code == (400 if one != one.upper() else 204)


def test_sum_over_the_capacity_writes_nothing(shared: Client, provider: str):
    one, two = consumers()
    before = shared.generation(provider)
    content = {who: entry("1.39", {provider: {"VCPU": 6}}) for who in (one, two)}
    answer = shared.post("/allocations", content)
    assert answer.status_code == 409
    assert CAPACITY in detail(answer)
    assert shared.used(provider) == {"VCPU": 0}
    assert shared.generation(provider) == before
    assert shared.claim({provider: {"VCPU": 1}}, one).status_code == 204


def test_full_provider_passes_from_one_consumer_to_another(shared: Client, provider: str):
    one, two = consumers()
    assert shared.claim({provider: {"VCPU": 10}}, one).status_code == 204
    content = {one: entry("1.39", {}, 1), two: entry("1.39", {provider: {"VCPU": 10}})}
    assert shared.post("/allocations", content).status_code == 204
    assert shared.used_by(one) == {}
    assert shared.used_by(two) == {provider: {"VCPU": 10}}


def test_two_consumers_swap_full_providers(shared: Client):
    first, second = shared.provider(unique(), VCPU=4), shared.provider(unique(), VCPU=4)
    one, two = consumers()
    shared.claim({first: {"VCPU": 4}}, one)
    shared.claim({second: {"VCPU": 4}}, two)
    content = {
        one: entry("1.39", {second: {"VCPU": 4}}, 1),
        two: entry("1.39", {first: {"VCPU": 4}}, 1),
    }
    assert shared.post("/allocations", content).status_code == 204
    assert shared.used_by(one) == {second: {"VCPU": 4}}


def test_many_consumers_change_at_once(shared: Client):
    own = shared.provider(unique(), VCPU=1000)
    many, before = consumers(150), shared.generation(own)
    first = {who: entry("1.39", {own: {"VCPU": 1}}) for who in many}
    assert shared.post("/allocations", first).status_code == 204
    # Once, however many consumers.
    assert shared.generation(own) == before + 1
    second = {who: entry("1.39", {own: {"VCPU": 2}}, 1, user_id=who) for who in many}
    assert shared.post("/allocations", second).status_code == 204
    assert shared.used(own) == {"VCPU": 300}
    assert shared.get(f"/allocations/{many[7]}").json["user_id"] == many[7]
    assert shared.consumer_generation(many[7]) == 2


# -- allocations of a provider ---------------------------------------------------------------------------


def test_provider_lists_its_consumers(shared: Client, provider: str):
    path = f"/resource_providers/{provider}/allocations"
    assert shared.get(path).json["allocations"] == {}
    held = dict(zip(consumers(), (1, 2), strict=True))
    for who, amount in held.items():
        shared.claim({provider: {"VCPU": amount}}, who)
    for version, more in (("1.0", {}), ("1.27", {}), ("1.28", {"consumer_generation": 1})):
        assert shared.at(version).get(path).json == {
            "resource_provider_generation": shared.generation(provider),
            "allocations": {who: {"resources": {"VCPU": n}, **more} for who, n in held.items()},
        }


# -- usages of projects ----------------------------------------------------------------------------------


class Project:
    """A project with three instances of two users, and a consumer that never told its type."""

    def __init__(self, api: Client) -> None:
        self.id = unique("project")
        own = api.provider(unique(), VCPU=100, DISK_GB=100)
        for user, amounts in (("ann", {"VCPU": 1}), ("ann", {"VCPU": 2, "DISK_GB": 5}), ("bob", {"VCPU": 4})):
            labels = {"project_id": self.id, "user_id": user}
            assert api.claim({own: amounts}, **labels).status_code == 204
        typeless = entry("1.37", {own: {"VCPU": 8}}, project_id=self.id, user_id="bob")
        assert api.at("1.37").put(f"/allocations/{uuid.uuid4()}", typeless).status_code == 204


@pytest.fixture(scope="module")
def project(shared_application) -> Project:
    return Project(Client(shared_application.test_client()))


@pytest.mark.parametrize(
    ("query", "usages"),
    [
        ("", {"VCPU": 15, "DISK_GB": 5}),
        ("&user_id=ann", {"VCPU": 3, "DISK_GB": 5}),
        ("&user_id=bob", {"VCPU": 12}),
        ("&user_id=nobody", {}),
    ],
)
def test_usages_exist_since_1_9_and_are_flat_before_1_38(
    shared: Client, project: Project, query: str, usages: dict
):
    # The last of repeated projects counts.
    path = f"/usages?project_id=nobody&project_id={project.id}{query}"
    assert shared.at("1.8").get(path).status_code == 404
    for version in ("1.9", "1.37"):
        assert shared.at(version).get(path).json == {"usages": usages}


@pytest.mark.parametrize(
    ("query", "usages"),
    [
        (
            "",
            {
                "INSTANCE": {"VCPU": 7, "DISK_GB": 5, "consumer_count": 3},
                "unknown": {"VCPU": 8, "consumer_count": 1},
            },
        ),
        ("&user_id=ann", {"INSTANCE": {"VCPU": 3, "DISK_GB": 5, "consumer_count": 2}}),
        ("&consumer_type=INSTANCE", {"INSTANCE": {"VCPU": 7, "DISK_GB": 5, "consumer_count": 3}}),
        ("&consumer_type=unknown", {"unknown": {"VCPU": 8, "consumer_count": 1}}),
        ("&consumer_type=all", {"all": {"VCPU": 15, "DISK_GB": 5, "consumer_count": 4}}),
        ("&consumer_type=ALL", {}),
        ("&consumer_type=UNKNOWN", {}),
        ("&consumer_type=MIGRATION", {}),
        ("&consumer_type=allx", {}),
    ],
)
def test_usages_are_grouped_by_type_since_1_38(shared: Client, project: Project, query: str, usages: dict):
    for version in ("1.38", "1.39"):
        for asked, found in ((project.id, usages), ("nobody", {})):
            answer = shared.at(version).get(f"/usages?project_id={asked}{query}")
            assert answer.json == {"usages": found}


def test_reader_sees_the_own_project_only(shared: Client, project: Project):
    reader = shared.as_(f"ann:{project.id}", X_Roles="reader")
    assert reader.get(f"/usages?project_id={project.id}").status_code == 200
    assert reader.get("/usages?project_id=another").status_code == 403
    assert reader.get("/usages").status_code == 403
    assert reader.get("/resource_providers").status_code == 403
    assert shared.as_(f"ann:{project.id}").get(f"/usages?project_id={project.id}").status_code == 403
    assert shared.get("/usages").status_code == 400
