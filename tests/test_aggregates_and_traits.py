"""What providers are in and carry, and /traits.

Source: placement-api.md, "Aggregates", "Traits of a provider", "Traits".
"""

from __future__ import annotations

import uuid

import os_traits
import pytest

from tests.client import Client, custom, detail, unique

VMX, SSD = "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"
STALE = "Resource provider's generation already changed. Please update the generation and try again."


@pytest.fixture
def provider(shared: Client) -> str:
    return shared.provider(unique())


def aggregates(provider: str) -> str:
    return f"/resource_providers/{provider}/aggregates"


def traits(provider: str) -> str:
    return f"/resource_providers/{provider}/traits"


def put_traits(api: Client, provider: str, *names: str, generation: int | None = None):
    guard = api.generation(provider) if generation is None else generation
    return api.put(traits(provider), {"traits": list(names), "resource_provider_generation": guard})


# -- aggregates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.1", "1.18"])
def test_aggregates_are_a_bare_list_and_leave_the_generation_before_1_19(
    shared: Client, provider: str, version: str
):
    one = str(uuid.uuid4())
    api = shared.at(version)
    answer = api.put(aggregates(provider), [one])
    assert answer.status_code == 200
    assert answer.json == api.get(aggregates(provider)).json == {"aggregates": [one]}
    assert shared.generation(provider) == 0
    body = {"aggregates": [one], "resource_provider_generation": 0}
    assert "JSON does not validate" in detail(api.put(aggregates(provider), body))


@pytest.mark.parametrize("version", ["1.19", "1.39"])
def test_aggregates_are_an_object_and_raise_the_generation_since_1_19(
    shared: Client, provider: str, version: str
):
    one = str(uuid.uuid4())
    api = shared.at(version)
    # Even if nothing differs.
    for generation in (0, 1):
        body = {"aggregates": [one], "resource_provider_generation": generation}
        answer = api.put(aggregates(provider), body)
        assert answer.status_code == 200
        assert answer.json == {"aggregates": [one], "resource_provider_generation": generation + 1}
    assert api.get(aggregates(provider)).json == answer.json
    assert "JSON does not validate" in detail(api.put(aggregates(provider), [one]))


def test_put_replaces_and_empties_the_set(shared: Client, provider: str):
    one, two = uuid.uuid4(), str(uuid.uuid4())
    for given, shown in (([one.hex.upper()], [str(one)]), ([two], [two]), ([], [])):
        shared.join(provider, *given)
        assert shared.get(aggregates(provider)).json["aggregates"] == shown


# -- traits of providers ---------------------------------------------------------------------------------


def test_put_replaces_the_traits(shared: Client, provider: str):
    answer = put_traits(shared, provider, VMX, SSD, VMX)
    assert answer.status_code == 200
    assert sorted(answer.json["traits"]) == [VMX, SSD]
    assert answer.json["resource_provider_generation"] == 1
    assert put_traits(shared, provider, SSD).json["traits"] == [SSD]
    assert shared.get(traits(provider)).json == {"traits": [SSD], "resource_provider_generation": 2}


def test_same_traits_leave_the_generation(shared: Client, provider: str):
    for names, generation in (([VMX], 1), ([VMX], 1), ([], 2), ([], 2), ([VMX], 3)):
        assert put_traits(shared, provider, *names).json["resource_provider_generation"] == generation
    for _ in range(2):
        assert shared.delete(traits(provider)).status_code == 204
        assert shared.get(traits(provider)).json == {"traits": [], "resource_provider_generation": 4}


# -- /traits ---------------------------------------------------------------------------------------------


def listed(api: Client, query: str = "") -> list[str]:
    answer = api.get(f"/traits?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json["traits"]


def test_a_trait_is_created_once_and_deleted_once(shared: Client):
    assert set(os_traits.get_traits()) <= set(listed(shared))
    name = custom()
    for status in (201, 204):
        answer = shared.put(f"/traits/{name}")
        assert answer.status_code == status
        assert answer.headers["Location"] == f"http://localhost/traits/{name}"
        assert "Last-Modified" in answer.headers
        assert not answer.data
    for status in (204, 404):
        assert shared.delete(f"/traits/{name}").status_code == status
    assert shared.delete("/traits/NOBODY").status_code == 404


def test_list_by_exact_names(shared: Client):
    assert sorted(listed(shared, f"name=in:{VMX},NOBODY,{SSD}")) == [VMX, SSD]
    assert listed(shared, "name=in:") == []
    assert listed(shared, f"name=in:NOBODY&name=in:{VMX}") == [VMX]


def test_list_by_literal_prefix(shared: Client):
    name = custom("P_Q")
    shared.put(f"/traits/{name}")
    assert listed(shared, f"name=startswith:{name}") == [name]
    assert listed(shared, f"name=startswith:{name.lower()}") == []
    assert listed(shared, "name=startswith:CUSTOM%25") == []
    assert listed(shared, "name=startswith:HW_CPU-X86") == []


def test_list_by_association(shared: Client, provider: str):
    carried, idle = custom(), custom()
    shared.put(f"/traits/{idle}")
    shared.carry(provider, carried)
    for yes, no in (("true", "false"), ("True", "FALSE")):
        assert listed(shared, f"associated={yes}&name=in:{carried},{idle}") == [carried]
        assert listed(shared, f"associated={no}&name=in:{carried},{idle}") == [idle]
