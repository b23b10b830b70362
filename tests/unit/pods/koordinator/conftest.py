"""Manifests of small hosts, built from the few things a test is about."""

import json

import pytest

from placement.common.manifest import ManifestError
from placement.pods.koordinator.node import import_node

# One socket per NUMA node, two cores each, adjacent siblings: (cpu, core, numa, socket).
SMALL_HOST = tuple((cpu, cpu // 2, cpu // 4, cpu // 4) for cpu in range(8))


def _annotations(values):
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def build_zone(numa, **resources):
    return {
        "name": f"node-{numa}",
        "type": "Node",
        "resources": [
            {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
            for name, amount in resources.items()
        ],
    }


def build_node(*, labels=None, annotations=None, allocatable=None, architecture="amd64", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-1",
            "uid": "5f6f8b0e-6c0f-4d7c-9a43-0d4b6d5f2a11",
            "labels": labels or {},
            "annotations": _annotations(annotations or {}),
            **metadata,
        },
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}
            if allocatable is None
            else allocatable,
            "nodeInfo": {"architecture": architecture},
        },
    }


def build_nrt(*, rows=SMALL_HOST, zones=None, annotations=None, policies=None):
    detail = [{"id": cpu, "core": core, "socket": socket, "node": numa} for cpu, core, numa, socket in rows]
    if zones is None:
        zones = [build_zone(0, cpu="4", memory="8Gi"), build_zone(1, cpu="4", memory="8Gi")]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "node-1",
            "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
            "annotations": _annotations(
                {
                    "node.koordinator.sh/cpu-topology": {"detail": detail},
                    "kubelet.koordinator.sh/cpu-manager-policy": {"policy": "none"},
                    **(annotations or {}),
                }
            ),
        },
        "topologyPolicies": policies or ["None"],
        "zones": zones,
    }


@pytest.fixture(scope="session")
def a_node():
    return build_node


@pytest.fixture(scope="session")
def an_nrt():
    return build_nrt


@pytest.fixture(scope="session")
def imported():
    """Import a host of cluster c1 that differs from the small one in what is given."""

    def run(node=None, nrt=None, profile="design"):
        return import_node("c1", node or build_node(), nrt or build_nrt(), profile)

    return run


@pytest.fixture(scope="session")
def refused(imported):
    """The findings with which a host is refused."""

    def run(node=None, nrt=None, profile="design"):
        with pytest.raises(ManifestError) as refusal:
            imported(node, nrt, profile)
        return refusal.value.findings

    return run


@pytest.fixture(scope="session")
def providers():
    """The providers of an import by the last part of their names, the root as `host`."""

    def run(result):
        root, *others = result.tree.providers
        return {"host": root} | {provider.name.split("/")[-1]: provider for provider in others}

    return run
