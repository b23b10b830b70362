"""A question on unchanged data has one answer, whatever the process that is asked has followed before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement.engine.domain.explanation import MOST_MISSES
from tests.client import Client
from tests.conftest import application_at
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest


@pytest.fixture
def fresh(api: Client, connection_url: str) -> Iterator[Client]:
    """Requests to a process that has followed nothing yet."""
    with application_at(connection_url) as application:
        yield Client(application.test_client())


def test_summaries_are_in_the_order_of_trees_as_they_were_made(api: Client, fresh: Client):
    question = "/allocation_candidates?resources=VCPU:1"
    first = api.provider("first", VCPU=4)
    second = api.provider("second", VCPU=4)
    assert api.get(question).status_code == 200
    # The process keeps the next provider in the row of the deleted one.
    assert api.delete(f"/resource_providers/{first}").status_code == 204
    assert api.get(question).status_code == 200
    third = api.provider("third", VCPU=4)
    answer = api.get(question)
    assert list(answer.json["provider_summaries"]) == [second, third]
    assert fresh.get(question).data == answer.data


def test_nodes_that_refuse_a_pod_are_told_by_name(api: Client, fresh: Client):
    cluster_of(api, "n1", "n2", "n0")
    pod = pod_manifest("20")
    assert api.post(f"{CLUSTER}/pods/preview", pod).status_code == 200
    # The process looks again at the node that changed, and at no other.
    assert api.put(f"{CLUSTER}/nodes/n0", node_manifests("n0", labels={"zone": "z"})).status_code == 200
    answers = [each.post(f"{CLUSTER}/pods/preview", pod) for each in (api, fresh)]
    assert [each["node"] for each in answers[0].json["rejected"]] == ["n0", "n1", "n2"]
    assert answers[0].data == answers[1].data
    refused = api.put(f"{CLUSTER}/pods/default/web", pod).json["errors"][0]
    assert [each["node"] for each in refused["nodes"]] == ["n0", "n1", "n2"]
    pod["metadata"] |= {"name": "web", "namespace": "default"}
    asked = {"Pod": pod, "NodeNames": ["n2", "n0", "n1"]}
    answers = [each.post(f"{CLUSTER}/extender/filter", asked) for each in (api, fresh)]
    assert list(answers[0].json["FailedNodes"]) == ["n0", "n1", "n2"]
    assert answers[0].data == answers[1].data


@pytest.mark.one_database
@pytest.mark.parametrize(
    "question",
    [
        "resources=VCPU:9",
        "resources=VCPU:1&required=HW_CPU_X86_AVX",
        "resources=VCPU:1&required=HW_CPU_X86_AVX&root_required=HW_CPU_X86_AVX",
        "resources_A=VCPU:3&resources_B=VCPU:3&resources_C=MEMORY_MB:9&group_policy=none",
        "resources_A=VCPU:3&resources_B=VCPU:3&group_policy=none&same_subtree=_A,_B",
        "resources_A=VCPU:1&resources_B=DISK_GB:1&group_policy=none",
    ],
)
def test_of_equal_near_misses_the_first_ones_made_are_told(api: Client, fresh: Client, question: str):
    """More hosts come equally close than are told, and each is a tree of two that could share an amount."""
    question = f"/ext/v1/allocation_candidates?{question}&explain=1"

    def host(name: str) -> str:
        root = api.provider(name, MEMORY_MB=8)
        for number in range(2):
            api.provider(f"{name}-{number}", root, VCPU=4)
        return root

    first = host("first")
    for number in range(MOST_MISSES + 1):
        host(f"host-{number}")
    api.provider("disk", DISK_GB=1)
    assert api.get(question).status_code == 200
    tree = api.get(f"/resource_providers?in_tree={first}").json["resource_providers"]
    for provider in tree[::-1]:
        assert api.delete(f"/resource_providers/{provider['uuid']}").status_code == 204
    assert api.get(question).status_code == 200
    # The process keeps it in the rows of the first.
    host("last")
    answer = api.get(question)
    assert answer.json["allocation_requests"] == []
    assert fresh.get(question).data == answer.data


def test_what_a_plan_places_is_in_order_of_providers(api: Client, fresh: Client):
    cluster_of(api, "n1")
    wanted = {"cluster": "edge", "goal": {"fit": {"pod": pod_manifest("14"), "count": 1}}}
    answers = [each.post("/ext/v1/plans", wanted) for each in (api, fresh)]
    (placement,) = answers[0].json["placements"]
    assert len(placement) > 8
    assert list(placement) == sorted(placement)
    assert answers[1].json["placements"] == [placement]
