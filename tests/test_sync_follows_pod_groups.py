"""`placement sync kubernetes`: pods are sent with what their PodGroups say of their gangs, of all kinds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from placement.common.gang import GANG_MIN_AVAILABLE, GANG_NAME
from tests.api_server import ApiServer
from tests.pod_groups import KINDS, NATIVE, SIGS, gang_name, in_group, pod_group
from tests.probes import probed
from tests.server import free_port
from tests.service import Service
from tests.synchronizing import eventually, join, pod_manifest


@pytest.fixture(autouse=True)
def a_machine(api_server: ApiServer) -> None:
    join(api_server, "host-0")


def members(around: Any, api_version: str) -> int:
    """How many members with places the service knows of the gang of a PodGroup.

    One more member that asks for too many others is refused, and claims nothing.
    """
    asking = pod_manifest("asking")
    gang = gang_name(api_version).removeprefix("default/")
    asking["metadata"]["annotations"] = {GANG_NAME: gang, GANG_MIN_AVAILABLE: "99"}
    answer = Service(around.url).call("PUT", f"/ext/v1/clusters/{around.cluster}/pods/default/asking", asking)
    assert answer.status == 409, answer.body
    detail = answer.body["errors"][0]["detail"]
    found = re.search(rf"gang default/{re.escape(gang)} has (\d+) of the 99 members", detail)
    if found is None:
        # A node is closed until its pods are recorded.
        assert "closed to new pods" in detail
        return -1
    return int(found[1]) - 1


def test_running_pods_are_members_of_the_gangs_of_their_groups(around, api_server):
    for number, api_version in enumerate(KINDS):
        api_server.put(pod_group(api_version, 2))
        for each in range(number + 1):
            api_server.put(in_group(pod_manifest(f"web-{number}-{each}", "host-0", cpus=1), api_version))
    once = around.once()
    assert once.returncode == 0, once.stdout + once.stderr
    assert once.stdout.splitlines()[-1] == "nodes 1, pods 10, rejected 0"
    assert "PodGroup" not in once.stdout + once.stderr
    assert [members(around, api_version) for api_version in KINDS] == [1, 2, 3, 4]
    # Nothing changes when all of them are compared again.
    assert around.once().stdout.splitlines()[-1] == "nodes 1, pods 10, rejected 0"
    assert [members(around, api_version) for api_version in KINDS] == [1, 2, 3, 4]


@pytest.mark.parametrize("api_version", KINDS)
def test_pods_follow_their_group_when_it_comes_changes_and_goes(around, api_server, api_version):
    for name in ("a", "b"):
        api_server.put(in_group(pod_manifest(name, "host-0"), api_version))
    api_server.put(in_group(pod_manifest("c", "host-0"), api_version, "other"))
    kind = f"PodGroup.{api_version.partition('/')[0]}"
    with around.running() as sync:
        eventually(3, lambda: len(around.pods()))
        eventually(0, lambda: members(around, api_version))
        api_server.put(pod_group(api_version, 2))
        eventually(2, lambda: members(around, api_version))
        api_server.put(pod_group(api_version, 0 if api_version == SIGS else "many"))
        eventually(0, lambda: members(around, api_version))
        api_server.put(pod_group(api_version, 3))
        eventually(2, lambda: members(around, api_version))
        # What is reported again, for another reason, stays in the gang.
        relabelled = in_group(api_server.get("Pod", "a", "default"), api_version)
        relabelled["metadata"]["labels"]["tier"] = "front"
        api_server.put(relabelled)
        join(api_server, "host-1")
        eventually(2, lambda: len(around.nodes()))
        api_server.put(in_group(pod_manifest("d", "host-1"), api_version))
        eventually(3, lambda: members(around, api_version))
        api_server.delete(kind, "web", "default")
        eventually(0, lambda: members(around, api_version))
        sync.end()


def test_the_service_says_where_nothing_is_known_of_a_group(around, api_server):
    api_server.put(in_group(pod_manifest("a", "host-0"), SIGS))
    said = around.once().stdout
    assert "pod default/a: " in said
    assert "PodGroup web is not known here; the pod is placed alone" in said
    api_server.put(pod_group(SIGS))
    assert "PodGroup" not in around.once().stdout


def test_clusters_without_pod_groups_or_rights_on_them_are_followed(around, api_server):
    api_server.unknown_kinds |= {f"PodGroup.{api_version.partition('/')[0]}" for api_version in KINDS[:2]}
    for api_version in KINDS[2:]:
        api_server.fail_next(f"/{api_version}/podgroups", 403)
    for api_version in KINDS:
        name = f"of-{KINDS.index(api_version)}"
        api_server.put(in_group(pod_manifest(name, "host-0"), api_version))
    once = around.once()
    assert once.returncode == 0, once.stderr
    assert once.stdout.splitlines()[-1] == "nodes 1, pods 4, rejected 0"
    assert "Kubernetes, PodGroups" not in once.stdout + once.stderr
    assert [members(around, api_version) for api_version in KINDS] == [0, 0, 0, 0]


def test_a_kind_that_kubernetes_stops_knowing_makes_no_gangs_and_nothing_is_wrong(around, api_server):
    port = free_port()
    api_server.put(in_group(pod_manifest("a", "host-0"), NATIVE))
    api_server.put(pod_group(NATIVE))
    with around.running("--health-port", str(port)) as sync:
        eventually(["default/a"], lambda: list(around.pods()))
        eventually(1, lambda: members(around, NATIVE))
        # The watch breaks off, and goes on with a list.
        with api_server.away():
            api_server.unknown_kinds.add("PodGroup.scheduling.k8s.io")
        eventually(0, lambda: members(around, NATIVE))
        eventually(200, lambda: probed(f"http://127.0.0.1:{port}", "/readyz")[0])
        assert list(around.pods()) == ["default/a"]
        sync.end()
