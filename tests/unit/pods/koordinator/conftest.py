"""Manifests of small hosts, built from the few things a test is about."""

import pytest

from placement.common.manifest import ManifestError
from placement.pods.koordinator.node import import_node
from tests.kubernetes import node_manifests

# One socket per NUMA node, two cores each, adjacent siblings: (cpu, core, numa, socket).
SMALL_HOST = tuple((cpu, cpu // 2, cpu // 4, cpu // 4) for cpu in range(8))


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
    node = node_manifests("node-1", annotations=annotations, architecture=architecture)["node"]
    uid = "5f6f8b0e-6c0f-4d7c-9a43-0d4b6d5f2a11"
    node["metadata"] |= {"uid": uid, "labels": labels or {}, **metadata}
    given = {"cpu": "8", "memory": "16Gi", "pods": "110"} if allocatable is None else allocatable
    node["status"]["allocatable"] = given
    return node


def build_nrt(*, rows=SMALL_HOST, zones=None, annotations=None, policies=None):
    manifests = node_manifests("node-1", rows=rows, zones={}, nrt=annotations, policies=policies)
    report = manifests["nodeResourceTopology"]
    report["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Koordinator"}
    small = [build_zone(0, cpu="4", memory="8Gi"), build_zone(1, cpu="4", memory="8Gi")]
    report["zones"] = small if zones is None else zones
    return report


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
        return tuple(map(str, refusal.value.findings))

    return run


@pytest.fixture(scope="session")
def providers():
    """The providers of an import by the last part of their names, the root as `host`."""

    def run(result):
        root, *others = result.tree.providers
        return {"host": root} | {provider.name.split("/")[-1]: provider for provider in others}

    return run
