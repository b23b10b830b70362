"""On a real Kubernetes: pods are members of the gangs of their PodGroups, of each kind that it offers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from placement.common.gang import GANG_MIN_AVAILABLE, GANG_NAME
from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab, lab
from tests.pod_groups import CUSTOM, KINDS, NATIVE, gang_name, in_group, pod_group
from tests.real_kubernetes import ControlPlane, Refused
from tests.service import Service
from tests.synchronizing import eventually, pod_manifest

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# The first minor version with PodGroups of its own.
_NATIVE_SINCE = 36


def definition(api_version: str) -> dict[str, Any]:
    """A custom resource with as much of the schema as its project requires of the minimum."""
    group, version = api_version.split("/")
    spec = {"type": "object", "properties": {"minMember": {"type": "integer", "format": "int32"}}}
    schema = {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object"}},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    offered = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    # Groups of Kubernetes need the annotation, whoever defines the resource.
    annotations = {"api-approved.kubernetes.io": "unapproved, as in its project"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": annotations},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [offered]},
    }


def path_of(api_version: str, name: str = "") -> str:
    return f"/apis/{api_version}/namespaces/default/podgroups{name and '/'}{name}"


def is_served(kubernetes: ControlPlane, api_version: str) -> bool:
    with suppress(Refused):
        kubernetes.call("GET", path_of(api_version))
        return True
    return False


def delete_group(kubernetes: ControlPlane, api_version: str) -> None:
    """Delete the PodGroup; no controller is there that removes the finalizer of Kubernetes' own kind."""
    path = path_of(api_version, "web")
    kubernetes.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    kubernetes.call("DELETE", path)


@pytest.fixture
def around(any_kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(any_kubernetes, connection_url, tmp_path) as found:
        found.add_node("host-0")
        yield found


@pytest.fixture
def kinds(around: Lab) -> Iterator[list[str]]:
    """The kinds that Kubernetes offers: three by definitions, and its own if it has that."""
    kubernetes = around.kubernetes
    for api_version in CUSTOM:
        kubernetes.call("POST", _DEFINITIONS, definition(api_version))
    for api_version in CUSTOM:
        eventually(True, lambda each=api_version: is_served(kubernetes, each))
    assert is_served(kubernetes, NATIVE) == (kubernetes.minor >= _NATIVE_SINCE)
    yield [api_version for api_version in KINDS if is_served(kubernetes, api_version)]
    for api_version in CUSTOM:
        name = definition(api_version)["metadata"]["name"]
        kubernetes.call("DELETE", f"{_DEFINITIONS}/{name}")
        eventually(False, lambda each=api_version: is_served(kubernetes, each))


def create(around: Lab, name: str, api_version: str, node: str | None) -> dict[str, Any]:
    manifest = in_group(pod_manifest(name, node, cpus=1), api_version)
    del manifest["metadata"]["uid"], manifest["status"]
    created: dict[str, Any] = around.kubernetes.create(manifest)
    return created


def members(around: Lab, api_version: str) -> int:
    """How many members with places the service knows of the gang; -1 while the node takes no pod."""
    asking = pod_manifest("asking")
    gang = gang_name(api_version).removeprefix("default/")
    asking["metadata"]["annotations"] = {GANG_NAME: gang, GANG_MIN_AVAILABLE: "99"}
    path = f"/ext/v1/clusters/{CLUSTER}/pods/default/asking"
    answer = Service(around.url, TOKEN).call("PUT", path, asking)
    detail = str(answer.body["errors"][0]["detail"])
    found = re.search(rf"gang default/{re.escape(gang)} has (\d+) of the 99 members", detail)
    assert found or "closed to new pods" in detail, detail
    return int(found[1]) - 1 if found else -1


def test_pods_are_members_of_the_gangs_of_their_groups(around, kinds):
    with around.synchronized(1) as sync:
        for number, api_version in enumerate(kinds):
            for each in "ab":
                created = create(around, f"web-{number}-{each}", api_version, "host-0")
                if api_version == NATIVE:
                    assert created["spec"]["schedulingGroup"] == {"podGroupName": "web"}
        eventually(2 * len(kinds), lambda: len(around.claims()))
        for api_version in kinds:
            eventually(0, lambda each=api_version: members(around, each))
            around.kubernetes.call("POST", path_of(api_version), pod_group(api_version, 2))
            eventually(2, lambda each=api_version: members(around, each))
        for api_version in kinds:
            delete_group(around.kubernetes, api_version)
            eventually(0, lambda each=api_version: members(around, each))
        sync.end()
        assert "PodGroups of" not in sync.said


def test_groups_with_the_basic_policy_make_no_gang(around, kinds):
    if NATIVE not in kinds:
        pytest.skip("NOT RUN: this release has no PodGroups of its own")
    basic = pod_group(NATIVE, schedulingPolicy={"basic": {}})
    around.kubernetes.call("POST", path_of(NATIVE), basic)
    create(around, "web", NATIVE, "host-0")
    with around.synchronized(1) as sync:
        eventually({"web": "host-0"}, around.claims)
        eventually(0, lambda: members(around, NATIVE))
        sync.end()
    delete_group(around.kubernetes, NATIVE)


def test_a_kubernetes_that_offers_none_is_followed(around):
    create(around, "web", CUSTOM[0], "host-0")
    with around.synchronized(1) as sync:
        eventually({"web": "host-0"}, around.claims)
        sync.end()
        assert "PodGroups of" not in sync.said
