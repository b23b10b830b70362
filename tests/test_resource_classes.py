"""/resource_classes. Source: placement-api.md, "Resource classes"."""

from __future__ import annotations

import os_resource_classes
import pytest

from tests.client import Client, custom, detail, unique


def names(api: Client) -> list[str]:
    return [entry["name"] for entry in api.get("/resource_classes").json["resource_classes"]]


def test_list_has_all_standard_classes_first(shared: Client):
    assert names(shared)[: len(os_resource_classes.STANDARDS)] == os_resource_classes.STANDARDS


def test_entries_link_to_themselves(shared: Client):
    first = shared.get("/resource_classes").json["resource_classes"][0]
    assert first == {"name": "VCPU", "links": [{"rel": "self", "href": "/resource_classes/VCPU"}]}


def test_post_creates_a_custom_class(shared: Client):
    name = custom()
    answer = shared.post("/resource_classes", {"name": name})
    assert answer.status_code == 201
    assert not answer.data
    assert answer.headers["Location"] == f"http://localhost/resource_classes/{name}"
    assert "Last-Modified" not in answer.headers
    assert shared.get(f"/resource_classes/{name}").json["name"] == name


def test_put_before_1_7_renames(shared: Client):
    old, new = custom(), custom()
    shared.post("/resource_classes", {"name": old})
    answer = shared.at("1.6").put(f"/resource_classes/{old}", {"name": new})
    assert answer.status_code == 200
    assert answer.json == {"name": new, "links": [{"rel": "self", "href": f"/resource_classes/{new}"}]}
    assert shared.get(f"/resource_classes/{old}").status_code == 404


def test_rename_carries_the_inventories_along(shared: Client):
    old, new = custom(), custom()
    shared.post("/resource_classes", {"name": old})
    provider = shared.provider(unique(), **{old: 4})
    shared.at("1.6").put(f"/resource_classes/{old}", {"name": new})
    assert shared.used(provider) == {new: 0}
    found = shared.get(f"/allocation_candidates?resources={new}:1").json["provider_summaries"]
    assert found[provider]["resources"] == {new: {"capacity": 4, "used": 0}}


@pytest.mark.one_database
def test_rename_needs_a_json_body(shared: Client):
    assert shared.at("1.6").put("/resource_classes/CUSTOM_NOBODY").status_code == 415
    answer = shared.at("1.6").put("/resource_classes/CUSTOM_NOBODY", b"", Content_Type="application/json")
    assert answer.status_code == 400
    assert detail(answer).startswith("Malformed JSON:")


def test_put_since_1_7_creates_or_confirms(shared: Client):
    name = custom()
    for status in (201, 204):
        answer = shared.at("1.7").put(f"/resource_classes/{name}")
        assert answer.status_code == status
        assert answer.headers["Location"] == f"http://localhost/resource_classes/{name}"


def test_put_since_1_7_ignores_the_body(shared: Client):
    name = custom()
    answer = shared.put(f"/resource_classes/{name}", b"nothing", Content_Type="text/plain")
    assert answer.status_code == 201
