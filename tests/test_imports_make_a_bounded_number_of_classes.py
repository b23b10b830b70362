"""What nodes offer becomes resource classes, which all clusters share, so their number is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from placement.app import build, configured
from placement.providers import trees
from placement.server import settings
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import compatible
from tests.kubernetes import node_manifests

CLUSTER = "/ext/v1/clusters/edge"


def devices(name: str, first: int, count: int) -> dict:
    numbers = range(first, first + count)
    return node_manifests(name, **{f"example.com__dev{number}": "1" for number in numbers})


def classes(api: Client) -> int:
    return len(api.get("/resource_classes").json["resource_classes"])


def test_a_node_makes_no_more_than_a_few(api: Client):
    assert api.put(CLUSTER).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/big", devices("big", 0, 3000))
    assert answer.status_code == 400
    assert "Node.status.allocatable: " in detail(answer)
    assert classes(api) == before
    assert api.put(f"{CLUSTER}/nodes/usual", devices("usual", 0, 40)).status_code == 201


def test_a_cluster_makes_no_more_than_it_may_have(api: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trees, "_MOST_CLASSES", 60)
    assert api.put(CLUSTER).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n1", devices("n1", 0, 40)).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/n2", devices("n2", 40, 40))
    assert answer.status_code == 409
    assert "Node.status.allocatable: resource class CUSTOM_EXAMPLE_COM_DEV" in detail(answer)
    assert classes(api) == before
    # Of many nodes those are imported that bring no new class.
    items = [part for body in (devices("n2", 40, 40), devices("n3", 0, 40)) for part in body.values()]
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [each["status"] for each in outcomes] == [409, 201]


@contextmanager
def admitting(database: Database, *prefixes: str) -> Iterator[Client]:
    """The service with these [clusters] resource_prefixes."""
    application = build(database, compatible(), resource_prefixes=prefixes)
    yield Client(application.test_client())
    application.extensions["placement_use_cases"].close()


def names(api: Client) -> set[str]:
    return {entry["name"] for entry in api.get("/resource_classes").json["resource_classes"]}


MIXED = {"nvidia.com__gpu": "2", "evil.example__dev": "1", "hugepages-1Gi": "2Gi", "evil": "1"}


def test_resources_without_an_admitted_prefix_are_left_out(database: Database):
    zones = {0: {"cpu": "8", "nvidia.com/gpu": "2", "evil.example/zoned": "1"}}
    with admitting(database, "nvidia.com/", "amd.com/") as api:
        assert api.put(CLUSTER).status_code == 201
        answer = api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", zones=zones, **MIXED))
        assert answer.status_code == 201
        (remark,) = [text for text in answer.json["warnings"] if "resource_prefixes" in text]
        assert remark == (
            "Node.status.allocatable: resources without a prefix in [clusters] resource_prefixes "
            "are left out, also of zones: 'evil', 'evil.example/dev', 'evil.example/zoned'"
        )
        assert {"CUSTOM_NVIDIA_COM_GPU", "CUSTOM_HUGEPAGES_1GI", "CUSTOM_PODS"} <= names(api)
        assert not [name for name in names(api) if "EVIL" in name]


def test_a_remark_on_very_many_resources_is_short(database: Database):
    with admitting(database, "nvidia.com/") as api:
        assert api.put(CLUSTER).status_code == 201
        answer = api.put(f"{CLUSTER}/nodes/n1", devices("n1", 0, 3000))
        assert answer.status_code == 201
        (remark,) = [text for text in answer.json["warnings"] if "resource_prefixes" in text]
        assert remark.endswith("and 2990 more")


def test_the_prefixes_count_from_the_next_import_on(database: Database):
    with admitting(database) as api:
        assert api.put(CLUSTER).status_code == 201
        assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", **MIXED)).status_code == 201
        assert "CUSTOM_EVIL" in names(api)
    items = list(node_manifests("n1", **MIXED).values())
    with admitting(database, "nvidia.com/") as api:
        (outcome,) = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
        assert "resource_prefixes" in " ".join(outcome["warnings"])
        assert "CUSTOM_EVIL" not in names(api)
    with admitting(database) as api:
        api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items})
        assert "CUSTOM_EVIL" in names(api)


@pytest.mark.parametrize("connection_url", ["sqlite"], indirect=True)
def test_the_prefixes_are_a_setting(connection_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", connection_url)
    monkeypatch.setenv("OS_API__AUTH_STRATEGY", "noauth2")
    monkeypatch.setenv("OS_CLUSTERS__RESOURCE_PREFIXES", "nvidia.com/, amd.com/")
    application = configured(settings.load())
    api = Client(application.test_client())
    assert api.put(CLUSTER).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", **MIXED)).status_code == 201
    assert "CUSTOM_NVIDIA_COM_GPU" in names(api)
    assert "CUSTOM_EVIL" not in names(api)
    application.extensions["placement_use_cases"].close()
