"""On a real Kubernetes: topologies are followed in the version of the API that it offers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.kubernetes import node_manifests
from tests.real_kubernetes import ControlPlane, Refused
from tests.synchronizing import eventually

_DEFINITION = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/noderesourcetopologies.topology.node.k8s.io"
)
_NEWER = "topology.node.k8s.io/v1alpha2"
_OBJECTS = f"/apis/{_NEWER}/noderesourcetopologies"


@pytest.fixture
def around(kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(kubernetes, connection_url, tmp_path) as found:
        yield found


def offer(kubernetes: ControlPlane, version: str) -> None:
    """Only this version of the custom resource is served from now on."""
    definition = kubernetes.call("GET", _DEFINITION)
    versions = {each["name"]: each for each in definition["spec"]["versions"]}
    if "v1alpha2" not in versions:
        newer = copy.deepcopy(versions["v1alpha1"])
        schema = newer["schema"]["openAPIV3Schema"]
        schema["required"] = ["zones"]
        schema["properties"]["attributes"] = copy.deepcopy(
            schema["properties"]["zones"]["items"]["properties"]["attributes"]
        )
        versions["v1alpha2"] = newer | {"name": "v1alpha2"}
    for name, each in versions.items():
        each["served"] = each["storage"] = name == version
    definition["spec"]["versions"] = list(versions.values())
    kubernetes.call("PUT", _DEFINITION, definition)
    eventually(version == "v1alpha2", lambda: is_served(kubernetes))


def is_served(kubernetes: ControlPlane) -> bool:
    with suppress(Refused):
        kubernetes.call("GET", _OBJECTS)
        return True
    return False


@pytest.fixture
def newer(around: Lab) -> Iterator[None]:
    """Kubernetes offers v1alpha2, as Node Feature Discovery installs it."""
    offer(around.kubernetes, "v1alpha2")
    yield
    around.kubernetes.call("DELETE", _OBJECTS)
    offer(around.kubernetes, "v1alpha1")


def discovered(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Node, and the topology that Node Feature Discovery writes of it."""
    manifests = node_manifests(name)
    node, topology = manifests["node"], manifests["nodeResourceTopology"]
    del node["metadata"]["uid"], topology["metadata"]["annotations"], topology["topologyPolicies"]
    attributes = [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]
    return node, topology | {"apiVersion": _NEWER, "attributes": attributes}


def test_topologies_of_node_feature_discovery_are_followed(around, newer):
    node, topology = discovered("host-0")
    around.kubernetes.create(topology)
    around.kubernetes.create(node)

    def numa_nodes() -> list[int]:
        tree = around.service("GET", "/nodes/host-0")["tree"]
        return [each["resources"]["MEMORY_MB"]["total"] for each in tree["children"]]

    with around.synchronized(1):
        assert numa_nodes() == [16384, 16384]
        traits = around.service("GET", "/nodes/host-0")["tree"]["traits"]
        assert "CUSTOM_KOORD_NUMA_POLICY_SINGLE_NUMA_NODE" in traits
        amounts = {"zones": copy.deepcopy(topology["zones"])}
        amounts["zones"][0]["resources"][1]["allocatable"] = "1Gi"
        path = f"{_OBJECTS}/host-0"
        around.kubernetes.call("PATCH", path, amounts, "application/merge-patch+json")
        eventually(1024, lambda: numa_nodes()[0])
