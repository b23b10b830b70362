"""What a member of a claim says counts, and what it says wrongly is told by its place."""

from __future__ import annotations

import uuid

import pytest

from tests.client import Client

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/claims"
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
FLAVOR = {"vcpus": 2, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def test_a_member_has_a_cluster_of_its_own(api: Client):
    """Who may claim in that cluster only, as the rules look at it, gets nothing elsewhere."""
    api.provider("outside", PCPU=8, MEMORY_MB=1024)
    assert api.put("/ext/v1/clusters/mine", {}).status_code in (200, 201)
    body = {**OWNER, "members": [{"count": 1, "cluster": "mine"}, {"count": 1}], "flavor": FLAVOR}
    inside, anywhere = api.post(PATH, body).json["members"]
    assert inside["status"] == 409
    assert anywhere["status"] == 201


def test_a_member_has_options_and_an_image_of_its_own(api: Client):
    api.provider("shared-cpus", VCPU=8, MEMORY_MB=1024)
    modest = {"count": 1, "options": {"pcpu_fallback": True}}
    body = {**OWNER, "members": [modest, {"count": 1}], "flavor": FLAVOR}
    assert [each["status"] for each in api.post(PATH, body).json["members"]] == [201, 409]


def test_errors_of_a_server_group_name_it(api: Client):
    api.provider("only", PCPU=8, MEMORY_MB=1024)
    group = {"id": str(uuid.uuid4()), "policy": "anti-affinity"}
    answer = api.post(PATH, {**OWNER, "members": [{"count": 2}], "flavor": FLAVOR, "server_group": group})
    error = answer.json["members"][1]["error"]["detail"]
    assert "server_group (at most 1 per host) leaves out 1 of them" in error
