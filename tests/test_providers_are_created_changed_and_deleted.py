"""/resource_providers and /resource_providers/{uuid}. Source: placement-api.md, "Resource providers"."""

from __future__ import annotations

import uuid

import pytest

from tests.client import Client, code, custom, detail, unique


def create(api: Client, **body: object):
    return api.post("/resource_providers", {"name": unique(), **body})


def shown(api: Client, provider: str) -> dict:
    return api.get(f"/resource_providers/{provider}").json


def put(api: Client, provider: str, name: str | None = None, **body: object):
    name = shown(api.at("1.39"), provider)["name"] if name is None else name
    return api.put(f"/resource_providers/{provider}", {"name": name, **body})


def test_post_before_1_20_answers_201_without_a_body(shared: Client):
    own = str(uuid.uuid4())
    answer = create(shared.at("1.19"), uuid=own)
    assert answer.status_code == 201
    assert not answer.data
    assert answer.headers["Location"] == f"http://localhost/resource_providers/{own}"
    assert "Last-Modified" not in answer.headers


def test_post_since_1_20_answers_200_with_the_provider(shared: Client):
    answer = create(shared.at("1.20"))
    assert answer.status_code == 200
    assert answer.json["generation"] == 0
    assert answer.headers["Location"].endswith(f"/resource_providers/{answer.json['uuid']}")
    assert answer.headers["Cache-Control"] == "no-cache"
    assert "Last-Modified" in answer.headers
    assert shown(shared, answer.json["uuid"]) == answer.json


def test_missing_uuid_is_generated(shared: Client):
    assert uuid.UUID(create(shared).json["uuid"]).version == 4


@pytest.mark.one_database
@pytest.mark.parametrize(
    "spelling",
    [
        lambda own: own.hex,
        lambda own: str(own).upper(),
        lambda own: own.urn,
        lambda own: "{" + str(own) + "}",
        lambda own: f"uuid:{own}",
    ],
    ids=["undashed", "upper", "urn", "braces", "uuid"],
)
def test_uuid_is_normalised(shared: Client, spelling):
    own = uuid.uuid4()
    assert create(shared, uuid=spelling(own)).json["uuid"] == str(own)


def test_same_uuid_in_another_spelling_is_409(shared: Client):
    own = uuid.uuid4()
    create(shared, uuid=str(own))
    answer = create(shared, uuid=own.hex)
    assert answer.status_code == 409
    assert detail(answer) == f"Conflicting resource provider uuid: {own} already exists."
    assert code(answer) == "placement.duplicate_name"


@pytest.mark.parametrize("method", ["create", "update"])
def test_names_have_1_to_200_characters(shared: Client, method: str):
    own = create(shared).json["uuid"]

    def attempt(name: str):
        return create(shared, name=name) if method == "create" else put(shared, own, name)

    assert attempt(unique("\N{SNOWMAN}").ljust(200, "x")).status_code == 200
    too_long = attempt("x" * 201)
    assert too_long.status_code == 400
    assert "Failed validating 'maxLength'" in detail(too_long)
    empty = attempt("")
    assert empty.status_code == 400
    assert detail(empty).endswith("name is required")


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("version", "key", "status"),
    [
        ("1.13", "parent_provider_uuid", 400),
        ("1.14", "parent_provider_uuid", 200),
        ("1.39", "root_provider_uuid", 400),
        ("1.39", "generation", 400),
    ],
)
def test_keys_of_the_body(shared: Client, version: str, key: str, status: int):
    parent = create(shared).json["uuid"]
    answer = create(shared.at(version), **{key: parent})
    assert answer.status_code in (status, 201 if status == 200 else status)
    if status == 400:
        assert f"'{key}' was unexpected" in detail(answer)


def test_children_and_grandchildren_share_the_root(shared: Client):
    root = shared.provider(unique())
    child = shared.provider(unique(), root)
    grandchild = shared.provider(unique(), child)
    assert shown(shared, root)["parent_provider_uuid"] is None
    assert shown(shared, root)["root_provider_uuid"] == root
    assert shown(shared, child)["parent_provider_uuid"] == root
    assert shown(shared, grandchild)["parent_provider_uuid"] == child
    assert shown(shared, grandchild)["root_provider_uuid"] == root
    assert shared.generation(root) == 0


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("version", "rels"),
    [
        ("1.0", "self inventories usages"),
        ("1.1", "self inventories usages aggregates"),
        ("1.5", "self inventories usages aggregates"),
        ("1.6", "self inventories usages aggregates traits"),
        ("1.10", "self inventories usages aggregates traits"),
        ("1.11", "self inventories usages aggregates traits allocations"),
    ],
)
def test_links_grow_with_the_version(shared: Client, version: str, rels: str):
    own = create(shared).json["uuid"]
    links = shown(shared.at(version), own)["links"]
    assert [link["rel"] for link in links] == rels.split()
    for link in links:
        tail = "" if link["rel"] == "self" else f"/{link['rel']}"
        assert link["href"] == f"/resource_providers/{own}{tail}"


@pytest.mark.one_database
@pytest.mark.parametrize(("version", "present"), [("1.13", False), ("1.14", True)])
def test_parent_and_root_are_shown_since_1_14(shared: Client, version: str, present: bool):
    own = create(shared).json["uuid"]
    for body in (
        shown(shared.at(version), own),
        shared.at(version).get(f"/resource_providers?uuid={own}").json["resource_providers"][0],
    ):
        assert ("parent_provider_uuid" in body) is present
        assert ("root_provider_uuid" in body) is present


def test_path_uuids_are_taken_literally(shared: Client):
    own = uuid.UUID(create(shared).json["uuid"])
    assert shared.get(f"/resource_providers/{own.hex}").status_code == 404
    assert shared.get(f"/resource_providers/{str(own).upper()}").status_code == 404


def test_put_renames_and_keeps_the_generation(shared: Client):
    own = shared.provider(unique(), VCPU=1)
    name = unique()
    answer = put(shared, own, name)
    assert answer.status_code == 200
    assert answer.json["name"] == name
    assert answer.json["generation"] == 1
    assert shown(shared, own) == answer.json


def test_put_of_a_taken_name_is_409(shared: Client):
    own, taken = create(shared).json["uuid"], create(shared).json["name"]
    answer = put(shared, own, taken)
    assert answer.status_code == 409
    assert detail(answer) == f"Conflicting resource provider {taken} already exists."
    assert code(answer) == "placement.duplicate_name"


def test_put_of_a_uuid_is_400(shared: Client):
    own = create(shared).json["uuid"]
    assert "'uuid' was unexpected" in detail(put(shared, own, uuid=own))


def test_put_without_a_parent_keeps_it(shared: Client):
    root = shared.provider(unique())
    child = shared.provider(unique(), root)
    for version in ("1.13", "1.14", "1.39"):
        assert put(shared.at(version), child, unique()).status_code == 200
        assert shown(shared, child)["parent_provider_uuid"] == root


def test_root_may_get_a_parent_and_takes_its_subtree_along(shared: Client):
    top, root = shared.provider(unique()), shared.provider(unique())
    leaf = shared.provider(unique(), root)
    assert put(shared.at("1.14"), root, parent_provider_uuid=top).status_code == 200
    assert shown(shared, leaf)["root_provider_uuid"] == top
    assert shown(shared, leaf)["parent_provider_uuid"] == root
    assert shown(shared, root)["root_provider_uuid"] == top
    assert [shared.generation(provider) for provider in (top, root, leaf)] == [0, 0, 0]


def test_subtree_moves_to_another_parent_since_1_37(shared: Client):
    root, other = shared.provider(unique()), shared.provider(unique())
    child = shared.provider(unique(), root, VCPU=2)
    leaf = shared.provider(unique(), child)
    shared.claim({child: {"VCPU": 1}})
    before = shared.generation(child)
    assert put(shared.at("1.37"), child, parent_provider_uuid=other).status_code == 200
    assert shown(shared, leaf)["root_provider_uuid"] == other
    assert shared.generation(child) == before


def test_freed_provider_roots_its_own_subtree_since_1_37(shared: Client):
    root = shared.provider(unique())
    child = shared.provider(unique(), root)
    leaf = shared.provider(unique(), child)
    answer = put(shared.at("1.37"), child, parent_provider_uuid=None)
    assert answer.status_code == 200
    assert answer.json["root_provider_uuid"] == child
    assert shown(shared, leaf)["root_provider_uuid"] == child
    tree = shared.get(f"/resource_providers?in_tree={leaf}").json["resource_providers"]
    assert {member["uuid"] for member in tree} == {child, leaf}


def test_delete_removes_a_leaf_once(shared: Client):
    own = shared.provider(unique(), VCPU=1)
    assert shared.delete(f"/resource_providers/{own}").status_code == 204
    answer = shared.delete(f"/resource_providers/{own}")
    assert answer.status_code == 404
    assert detail(answer) == f"No resource provider with uuid {own} found for delete"


def test_delete_frees_the_name_and_the_traits(shared: Client):
    name, trait = unique(), custom()
    own = shared.provider(name)
    shared.carry(own, trait)
    shared.join(own, str(uuid.uuid4()))
    assert shared.delete(f"/traits/{trait}").status_code == 409
    assert shared.delete(f"/resource_providers/{own}").status_code == 204
    assert shared.delete(f"/traits/{trait}").status_code == 204
    assert create(shared, name=name, uuid=own).status_code == 200


def test_snowman_is_a_name(shared: Client):
    name = f"\N{SNOWMAN}{unique()}\U0001f600"
    own = create(shared, name=name).json["uuid"]
    assert shown(shared, own)["name"] == name
    found = shared.http.get(
        "/resource_providers", query_string={"name": name}, headers={"X-Auth-Token": "admin"}
    )
    assert [provider["uuid"] for provider in found.json["resource_providers"]] == [own]
    assert shared.delete(f"/resource_providers/{own}").status_code == 204
