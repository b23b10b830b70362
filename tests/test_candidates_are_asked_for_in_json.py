"""POST /ext/v1/allocation_candidates says in JSON what its query string can say, and more of it."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.client import Client, detail

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/allocation_candidates"


@pytest.fixture
def hosts(api: Client) -> list[str]:
    """Three hosts with VFs below them, the second and third with a trait, the third in an aggregate."""
    made = [api.provider(f"host-{number}", VCPU=8, MEMORY_MB=1024 * (number + 1)) for number in range(3)]
    for host in made:
        for number in range(2):
            api.provider(f"{host}-vf-{number}", host, SRIOV_NET_VF=4)
    for host in made[1:]:
        api.carry(host, "HW_CPU_X86_AVX")
    api.join(made[2], AGGREGATE)
    assert api.claim({made[1]: {"VCPU": 4}}).status_code == 204
    return made


AGGREGATE = str(uuid.uuid4())
SAME = [
    ({"groups": {"": {"resources": {"VCPU": 1}}}}, {"resources": "VCPU:1"}),
    ({"groups": {"": {"resources": {"VCPU": 5, "MEMORY_MB": 512}, "required": ["HW_CPU_X86_AVX"]}},
        "limit": 1}, {"resources": "VCPU:5,MEMORY_MB:512", "required": "HW_CPU_X86_AVX", "limit": 1}),
    ({"groups": {"": {"resources": {"VCPU": 1}, "required": [["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"]]}}},
        {"resources": "VCPU:1", "required": "in:HW_CPU_X86_AVX,HW_CPU_X86_AVX2"}),
    ({"groups": {"": {"resources": {"VCPU": 1}, "forbidden": ["HW_CPU_X86_AVX"]}}},
        {"resources": "VCPU:1", "required": "!HW_CPU_X86_AVX"}),
    ({"groups": {"": {"resources": {"VCPU": 1}, "member_of": [AGGREGATE]}}},
        {"resources": "VCPU:1", "member_of": AGGREGATE}),
    ({"groups": {"": {"resources": {"VCPU": 1}, "forbidden_aggregates": [AGGREGATE]}}},
        {"resources": "VCPU:1", "member_of": f"!{AGGREGATE}"}),
    ({"groups": {"_a": {"resources": {"SRIOV_NET_VF": 2}}, "_b": {"resources": {"SRIOV_NET_VF": 3}},
        "_host": {"required": ["HW_CPU_X86_AVX"]}}, "group_policy": "isolate",
        "same_subtree": [["_host", "_a", "_b"]]}, {"resources_a": "SRIOV_NET_VF:2",
        "resources_b": "SRIOV_NET_VF:3", "required_host": "HW_CPU_X86_AVX", "group_policy": "isolate",
        "same_subtree": "_host,_a,_b"}),
    ({"groups": {"": {"resources": {"VCPU": 1}}}, "root_required": ["HW_CPU_X86_AVX"],
        "root_forbidden": ["HW_CPU_X86_AVX2"]}, {"resources": "VCPU:1",
        "root_required": "HW_CPU_X86_AVX,!HW_CPU_X86_AVX2"}),
    ({"groups": {"": {"resources": {"VCPU": 1}}}, "order_by": {"type": "MostAllocated"}},
        {"resources": "VCPU:1", "order_by": '{"type": "MostAllocated"}'}),
    ({"groups": {"": {"resources": {"VCPU": 9}}}, "prefer": ["!HW_CPU_X86_AVX:3"], "explain": True},
        {"resources": "VCPU:9", "prefer": "!HW_CPU_X86_AVX:3", "explain": 1}),
    ({"groups": {"_v": {"resources": {"SRIOV_NET_VF": 6}, "split": ["SRIOV_NET_VF"],
        "split_rule": "spread"}}}, {"resources_v": "SRIOV_NET_VF:6", "split_v": "SRIOV_NET_VF",
        "split_rule_v": "spread"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "query"), SAME)
def test_json_and_query_string_get_the_same_answer(api: Client, hosts, body: dict[str, Any], query: dict):
    by_url, by_json = api.get(f"{PATH}?{urlencode(query)}"), api.post(PATH, body)
    assert (by_url.status_code, by_json.status_code) == (200, 200), by_json.text
    assert by_json.json == by_url.json
    assert by_url.json["allocation_requests"] or "explain" in query


def test_one_tree_and_many_aggregates_and_groups_can_be_asked_for(api: Client, hosts):
    aggregates = [*(str(uuid.uuid4()) for _ in range(499)), AGGREGATE]
    for condition in ({"in_tree": hosts[2]}, {"member_of": [aggregates]}):
        body = {"groups": {"": {"resources": {"VCPU": 1}, **condition}}}
        (found,) = api.post(PATH, body).json["allocation_requests"]
        assert list(found["allocations"]) == [hosts[2]]
    wide = api.provider("wide", DISK_GB=1)
    api.join(wide, AGGREGATE)
    for number in range(64):
        api.provider(f"device-{number}", wide, PGPU=1)
    groups: dict[str, Any] = {f"_{number}": {"resources": {"PGPU": 1}} for number in range(63)}
    groups[""] = {"resources": {"DISK_GB": 1}, "member_of": [aggregates]}
    answer = api.post(PATH, {"groups": groups, "group_policy": "isolate", "limit": 1})
    (found,) = answer.json["allocation_requests"]
    assert (len(found["allocations"]), len(found["mappings"])) == (64, 64)


def test_claims_take_the_same_json(api: Client, hosts):
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    claim = {"consumer_uuid": str(uuid.uuid4()), **owner}
    query = {"groups": {"": {"resources": {"VCPU": 1}, "member_of": [AGGREGATE]}}}
    answer = api.post("/ext/v1/claims", {**claim, "query": query})
    assert answer.status_code == 201, answer.text
    assert list(answer.json["allocations"]) == [hosts[2]]
    broken = {**claim, "query": {"groups": {"": {"resources": {"VCPU": -1}}}}}
    assert "query.groups[''].resources['VCPU']" in detail(api.post("/ext/v1/claims", broken))
    assert api.post("/ext/v1/claims", {**claim, "query": {**query, "limit": 1}}).status_code == 400
