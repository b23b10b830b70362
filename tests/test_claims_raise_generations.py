"""Each request that claims of a provider raises its generation by 1, whichever way its claim is written.

Source: placement-api.md, "Provider generation".
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest

_OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
_CLUSTER = "/ext/v1/clusters/edge"


def generation(api: Client, provider: str) -> int:
    found: int = api.get(f"/resource_providers/{provider}").json["generation"]
    return found


def new() -> str:
    return str(uuid.uuid4())


def test_claims_of_many_callers_at_the_same_time(api: Client):
    host = api.provider("host", VCPU=100)
    before = generation(api, host)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.claim({host: {"VCPU": 1}}, new()), range(24)))
    assert [answer.status_code for answer in answers] == [204] * 24
    assert generation(api, host) == before + 24


def test_claims_of_the_best_at_the_same_time(api: Client):
    host = api.provider("host", VCPU=100)
    before = generation(api, host)
    bodies = [{"consumer_uuid": new(), **_OWNER, "query": "resources=VCPU:1"} for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: api.post("/ext/v1/claims", body), bodies))
    assert [answer.status_code for answer in answers] == [201] * 24
    assert generation(api, host) == before + 24


def test_one_request_for_many_consumers_counts_once(api: Client):
    hosts = [api.provider(name, VCPU=100) for name in ("first", "second")]
    before = [generation(api, host) for host in hosts]
    both = {host: {"VCPU": 1} for host in hosts}
    wanted = {new(): Client.allocations(both) for _ in range(3)}
    assert api.post("/allocations", wanted).status_code == 204
    assert [generation(api, host) for host in hosts] == [each + 1 for each in before]
    members: dict[str, Any] = {**_OWNER, "query": "resources=VCPU:1&in_tree=" + hosts[0]}
    answer = api.post("/ext/v1/claims", {**members, "members": [{"consumer_uuid": new()} for _ in range(5)]})
    assert [member["status"] for member in answer.json["members"]] == [201] * 5
    assert [generation(api, host) for host in hosts] == [before[0] + 2, before[1] + 1]


def test_each_pod_counts(api: Client):
    assert api.put(_CLUSTER, {}).status_code in (200, 201)
    assert api.put(f"{_CLUSTER}/nodes/n1", node_manifests("n1")).status_code in (200, 201)
    (root,) = (
        each["uuid"]
        for each in api.get("/resource_providers").json["resource_providers"]
        if each["parent_provider_uuid"] is None
    )
    before = generation(api, root)
    for number in range(4):
        name = f"p{number}"
        answer = api.put(f"{_CLUSTER}/pods/default/{name}", pod_manifest("1", name=name, uid=new()))
        assert answer.status_code == 201, answer.text
    assert generation(api, root) == before + 4
