"""Refusals of pods name the field of the manifest that they are about, as a JSON Pointer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client, detail
from tests.kubernetes import CLUSTER, QOS, add_nodes, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database
POD = f"{CLUSTER}/pods/default/web"
LABEL = "/metadata/labels/koordinator.sh~1qosClass"


@pytest.fixture
def cluster(api: Client) -> Client:
    cluster_of(api)
    add_nodes(api, "n1")
    return api


def fields(answer: Any) -> dict[str, str]:
    """The words of each error, by its field."""
    return {each["field"]: each["detail"] for each in answer.json["errors"]}


@pytest.mark.parametrize("path", ["preview", "translation"])
@pytest.mark.parametrize("body", [{}, {"pod": None}, {"limit": 3}])
def test_a_preview_without_a_pod_says_that_it_is_missing(cluster: Client, path: str, body: dict[str, Any]):
    answer = cluster.post(f"{CLUSTER}/pods/{path}", body)
    assert (answer.status_code, fields(answer)) == (400, {"/pod": "pod: is missing"})


def test_a_manifest_without_a_kind_says_so(cluster: Client):
    answer = cluster.post(f"{CLUSTER}/pods/preview", {"pod": {}})
    assert (answer.status_code, detail(answer)) == (400, "kind: expected Pod; it is missing")


@pytest.mark.parametrize("node", [None, "n1"])
def test_what_must_not_change_is_named(cluster: Client, node: str | None):
    before = pod_manifest(uid="u1", labels={"koordinator.sh/priority": "1"}, node=node)
    assert cluster.put(POD, before).status_code == 201
    after = pod_manifest(uid="u1", qos="LS", labels={"koordinator.sh/priority": "2"}, node=node)
    answer = cluster.put(POD, after)
    assert answer.status_code == 400
    assert fields(answer) == {
        LABEL: f'labels.{QOS}: Invalid value: "LS": field is immutable',
        "/metadata/labels/koordinator.sh~1priority": 'labels.koordinator.sh/priority: Invalid value: "2": '
        "field is immutable",
    }


def test_a_priority_that_must_not_change_is_named(cluster: Client):
    assert cluster.put(POD, pod_manifest(uid="u1", qos="LS")).status_code == 201
    answer = cluster.put(POD, pod_manifest(uid="u1", qos="LS", priority=5500))
    assert (answer.status_code, list(fields(answer))) == (400, ["/spec/priority"])


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"cpu": "1500m"}, "/spec/containers"),
        ({"qos": "LS", "requests": {"kubernetes.io/batch-cpu": "1000"}}, LABEL),
    ],
)
def test_rules_of_admission_name_the_field(cluster: Client, members: dict[str, Any], field: str):
    answer = cluster.put(POD, pod_manifest(uid="u1", **members))
    assert (answer.status_code, list(fields(answer))) == (400, [field])
