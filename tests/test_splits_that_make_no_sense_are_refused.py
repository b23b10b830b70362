"""What only sharing providers offer is not split: in query strings, as JSON, and in claims of both forms."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

import pytest

from tests.client import Client, detail

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/allocation_candidates"


@pytest.fixture
def shared_disks(api: Client) -> str:
    """A host that shares two pools of disks, of 100 GB each; the host."""
    aggregate = str(uuid.uuid4())
    host = api.provider("host", VCPU=8)
    api.join(host, aggregate)
    for number in range(2):
        pool = api.provider(f"pool-{number}", DISK_GB=100)
        api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
        api.join(pool, aggregate)
    return host


def test_nothing_is_split_over_sharing_providers(api: Client, shared_disks: str):
    query = {"resources_disk": "DISK_GB:150", "split_disk": "DISK_GB"}
    body = {"groups": {"_disk": {"resources": {"DISK_GB": 150}, "split": ["DISK_GB"]}}}
    reason = "only sharing providers offer DISK_GB"
    claim = {
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_uuid": str(uuid.uuid4()),
    }
    for asked, field, search in (
        (urlencode(query), "split_disk", api.get(f"{PATH}?{urlencode(query)}")),
        (body, "groups['_disk'].split", api.post(PATH, body)),
    ):
        claimed = api.post("/ext/v1/claims", {**claim, "query": asked})
        for answer, place in ((search, field), (claimed, f"query: {field}")):
            assert answer.status_code == 400
            assert detail(answer).startswith(f"{place}: {reason}"), field
    beside = {**query, "resources_cpu": "VCPU:1", "same_subtree": "_cpu,_disk", "group_policy": "none"}
    assert api.get(f"{PATH}?{urlencode(beside)}").json["allocation_requests"] == []
