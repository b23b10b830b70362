"""YAML knows more kinds of values than JSON and databases do: they are refused, and dates are text."""

from __future__ import annotations

import pytest
import yaml

from tests.client import Client, detail
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

POD = f"{CLUSTER}/pods/default/odd"
NODE = f"{CLUSTER}/nodes/odd"
# What is written there, and where the refusal says it stands.
ODD = {
    "!!binary aGVsbG8=": "",
    "!!set {a, b}": "",
    "!!omap [a: 1]": "[0]",
    "!!pairs [a: 1]": "[0]",
    ".nan": "",
    "-.inf": "",
    "1.0e+400": "",
    "9" * 30: "",
    "9223372036854775808": "",
    "[{deep: .inf}]": "[0].deep",
    "{1: 2}": "",
    "{null: 2}": "",
    "{true: 2}": "",
    "{!!binary aGVsbG8= : 1}": "",
    "{example.com/x: .inf}": "[example.com/x]",
    '"a\\0b"': "",
    '{"a\\0b": 1}': "",
}


@pytest.fixture
def cluster(api: Client) -> Client:
    cluster_of(api, "n1")
    return api


def put(api: Client, path: str, manifest: dict, value: str):
    text = yaml.safe_dump(manifest).replace("ODD", value)
    return api.call("PUT", path, text.encode(), Content_Type="application/yaml")


def pod_with(where: str) -> dict:
    manifest = pod_manifest(cpu="1")
    manifest.setdefault(where, {})["odd"] = "ODD"
    return manifest


def node_with(*where: str) -> dict:
    manifests = node_manifests("odd")
    place = manifests["node"]
    for key in where:
        place = place[key]
    place["odd"] = "ODD"
    return manifests


def test_what_json_has_not_is_refused_with_the_name_of_the_field(cluster):
    for value, inside in ODD.items():
        for path, manifest, place in (
            (POD, pod_with("spec"), "Pod.spec.odd"),
            (NODE, node_with("status", "allocatable"), "node.status.allocatable.odd"),
            (NODE, node_with("metadata", "annotations"), "node.metadata.annotations.odd"),
        ):
            answer = put(cluster, path, manifest, value)
            assert answer.status_code == 400, (value, answer.text)
            assert detail(answer).startswith(f"{place}{inside}: "), value
            assert cluster.get(path).status_code == 404


@pytest.mark.both_databases
def test_the_largest_numbers_are_kept(cluster):
    for value in ("9223372036854775807", "-9223372036854775808", "1.5e+300"):
        answer = put(cluster, POD, pod_with("spec"), value)
        assert answer.status_code in (200, 201), answer.text
