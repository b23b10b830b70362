"""/resource_classes. Source: placement-api.md, "Resource classes"."""

from __future__ import annotations

import os_resource_classes
import pytest

from tests.client import Client, custom, detail, unique


def names(api: Client) -> list[str]:
    return [entry["name"] for entry in api.get("/resource_classes").json["resource_classes"]]


@pytest.mark.parametrize(("version", "status"), [("1.1", 404), ("1.2", 200)])
def test_classes_exist_since_1_2(shared: Client, version: str, status: int):
    assert shared.at(version).get("/resource_classes").status_code == status


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


def test_post_of_an_existing_class_is_409(shared: Client):
    name = custom()
    shared.post("/resource_classes", {"name": name})
    answer = shared.post("/resource_classes", {"name": name})
    assert answer.status_code == 409
    assert detail(answer) == f"Conflicting resource class already exists: {name}"


@pytest.mark.one_database
@pytest.mark.parametrize(
    "body",
    [
        {"name": "VCPU"},
        {"name": "IRON"},
        {"name": "custom_iron"},
        {"name": "CUSTOM_"},
        {"name": "CUSTOM_IRON\n"},
        {"name": f"CUSTOM_{'X' * 249}"},
        {"name": 5},
        {"name": "CUSTOM_A", "extra": 1},
        {},
    ],
)
def test_bad_names_and_keys_are_400(shared: Client, body: dict):
    answer = shared.post("/resource_classes", body)
    assert answer.status_code == 400
    assert detail(answer).startswith("JSON does not validate: ")


def test_unknown_class_is_404(shared: Client):
    name = custom()
    answer = shared.get(f"/resource_classes/{name}")
    assert answer.status_code == 404
    assert detail(answer) == f"No such resource class {name}."


def test_put_before_1_7_renames(shared: Client):
    old, new = custom(), custom()
    shared.post("/resource_classes", {"name": old})
    answer = shared.at("1.6").put(f"/resource_classes/{old}", {"name": new})
    assert answer.status_code == 200
    assert answer.json == {"name": new, "links": [{"rel": "self", "href": f"/resource_classes/{new}"}]}
    assert shared.get(f"/resource_classes/{old}").status_code == 404


def test_rename_to_the_same_name_is_fine(shared: Client):
    name = custom()
    shared.post("/resource_classes", {"name": name})
    assert shared.at("1.6").put(f"/resource_classes/{name}", {"name": name}).status_code == 200


def test_rename_carries_the_inventories_along(shared: Client):
    old, new = custom(), custom()
    shared.post("/resource_classes", {"name": old})
    provider = shared.provider(unique(), **{old: 4})
    shared.at("1.6").put(f"/resource_classes/{old}", {"name": new})
    assert shared.used(provider) == {new: 0}
    found = shared.get(f"/allocation_candidates?resources={new}:1").json["provider_summaries"]
    assert found[provider]["resources"] == {new: {"capacity": 4, "used": 0}}


def test_rename_to_a_taken_name_is_409(shared: Client):
    first, second = custom(), custom()
    shared.post("/resource_classes", {"name": first})
    shared.post("/resource_classes", {"name": second})
    answer = shared.at("1.6").put(f"/resource_classes/{first}", {"name": second})
    assert answer.status_code == 409
    assert detail(answer) == f"Resource class already exists: {second}"


@pytest.mark.parametrize(
    ("name", "body", "status", "message"),
    [
        ("VCPU", {"name": "CUSTOM_NEW"}, 400, "Cannot update standard resource class VCPU"),
        ("CUSTOM_NOBODY", {"name": "CUSTOM_NEW"}, 404, "No such resource class CUSTOM_NOBODY."),
        ("CUSTOM_NOBODY", {"name": "VCPU"}, 400, "JSON does not validate"),
        ("CUSTOM_NOBODY", {"name": "CUSTOM_NEW", "extra": 1}, 400, "'extra' was unexpected"),
    ],
)
def test_bad_renames(shared: Client, name: str, body: dict, status: int, message: str):
    answer = shared.at("1.6").put(f"/resource_classes/{name}", body)
    assert answer.status_code == status
    assert message in detail(answer)


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


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("name", "keyword"), [("VCPU", "pattern"), ("COW", "pattern"), (f"CUSTOM_{'X' * 249}", "maxLength")]
)
def test_put_since_1_7_takes_custom_names_only(shared: Client, name: str, keyword: str):
    answer = shared.at("1.7").put(f"/resource_classes/{name}")
    assert answer.status_code == 400
    assert f"Failed validating '{keyword}'" in detail(answer)


def test_delete_removes_a_custom_class_once(shared: Client):
    name = custom()
    shared.put(f"/resource_classes/{name}")
    assert shared.delete(f"/resource_classes/{name}").status_code == 204
    answer = shared.delete(f"/resource_classes/{name}")
    assert answer.status_code == 404
    assert detail(answer) == f"No such resource class {name}."


def test_class_with_an_inventory_cannot_be_deleted(shared: Client):
    name = custom()
    shared.put(f"/resource_classes/{name}")
    provider = shared.provider(unique(), **{name: 1})
    answer = shared.delete(f"/resource_classes/{name}")
    assert answer.status_code == 409
    assert detail(answer) == (
        f"Error in delete resource class: Cannot delete resource class {name}. Class is in use in inventory."
    )
    shared.offer(provider)
    assert shared.delete(f"/resource_classes/{name}").status_code == 204


@pytest.mark.one_database
@pytest.mark.parametrize("path", ["/resource_classes", "/resource_classes/VCPU"])
@pytest.mark.parametrize(("version", "cached"), [("1.14", False), ("1.15", True)])
def test_reads_have_caching_headers_since_1_15(shared: Client, path: str, version: str, cached: bool):
    headers = shared.at(version).get(path).headers
    assert ("Last-Modified" in headers) is cached
    assert (headers.get("Cache-Control") == "no-cache") is cached
