"""Flavors over HTTP: translated as the rules say, searched like any query, claimed where they fit."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cases import flavor as flavor_cases
from tests.cases.__main__ import load
from tests.client import Client, detail

pytestmark = pytest.mark.one_database

CASES = Path(__file__).parent / "data" / "flavor.json"
TRANSLATION = "/ext/v1/flavors/translation"
CANDIDATES = "/ext/v1/flavors/candidates"


# 8 CPUs on 2 guest nodes, 3 of them shared: dealt in turn they are VVPP and VPPP.
_EIGHT = {"vcpus": 8, "memory_mb": 512, "root_gb": 1}
DEALT = {**_EIGHT, "extra_specs": {"hw:numa_nodes": "2", "resources:VCPU": "3", "resources:PCPU": "5"}}
# The same split, said by a policy and a mask.
_MASK = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3,5-7"}
MASKED = {**_EIGHT, "extra_specs": {"hw:numa_nodes": "2", **_MASK}}


PINNED = {"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}
GRANULAR = {"numa": "granular"}


def numa_host(api: Client, name: str, *, vcpu: int = 4, pcpu: int = 4) -> tuple[str, str, str]:
    """A host with local disk and two NUMA nodes; the uuids of all three."""
    host = api.provider(name, DISK_GB=10)
    nodes = []
    for number in range(2):
        node = api.provider(f"{name}-numa-{number}", host, VCPU=vcpu, PCPU=pcpu, MEMORY_MB=1024)
        api.carry(node, "HW_NUMA_ROOT")
        nodes.append(node)
    return host, nodes[0], nodes[1]


def find(api: Client, flavor: dict[str, Any], **parts: Any) -> dict[str, Any]:
    answer = api.post(CANDIDATES, {"flavor": flavor, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json


@pytest.mark.parametrize("flavor", [DEALT, MASKED], ids=["amounts", "mask"])
def test_a_mixed_instance_holds_both_kinds_of_cpu_and_no_second_one_fits(api, flavor):
    host, first, second = numa_host(api, "host")
    found = find(api, flavor, options=GRANULAR)
    assert found["query_used"] == "querystring"
    # Either guest node on either host node.
    one, other = found["candidates"]["allocation_requests"]
    chosen = one if one["mappings"]["_numa0"] == [first] else other
    held = {name: each["resources"] for name, each in chosen["allocations"].items()}
    consumer, loser = str(uuid.uuid4()), str(uuid.uuid4())
    assert api.claim(held, consumer).status_code == 204
    assert api.used_by(consumer) == {
        host: {"DISK_GB": 1},
        first: {"VCPU": 2, "PCPU": 2, "MEMORY_MB": 256},
        second: {"VCPU": 1, "PCPU": 3, "MEMORY_MB": 256},
    }
    refused = api.claim(held, loser)
    assert refused.status_code == 409
    assert f"'PCPU' on resource provider '{second}" in detail(refused)
    assert "3 more with 3 of 4 used" in detail(refused)
    assert api.used_by(loser) == {}
    assert find(api, flavor, options=GRANULAR)["candidates"]["allocation_requests"] == []


def test_the_query_string_is_searched_as_anybody_would_search_it(api):
    for name in ("one", "two"):
        numa_host(api, name)
    found = find(api, DEALT, options=GRANULAR)
    ordinary = api.get(f"/allocation_candidates?{found['translation']['querystring']}")
    assert found["candidates"] == ordinary.json
    assert len(found["candidates"]["allocation_requests"]) == 4
    # A limit is a part of the query.
    found = find(api, DEALT, options=GRANULAR, limit=1)
    assert "limit=1" in found["translation"]["querystring"]
    assert len(found["candidates"]["allocation_requests"]) == 1
    assert find(api, DEALT, options={**GRANULAR, "limit": 1})["candidates"] == found["candidates"]


def test_every_case_passes_over_http(embedded: Client) -> None:
    document, _ = load(CASES)
    cases = [case for case in document["cases"] if case["kind"] == "translate"]
    assert len(cases) > 50
    for case in cases:
        answer = embedded.post(TRANSLATION, flavor_cases.body_of(case))
        outcome = answer.json
        if answer.status_code != 200:
            codes = [error["code"] for error in outcome["errors"]]
            outcome = {"error": codes[0], "problems": codes}
        assert flavor_cases.difference(case["expect"], outcome) is None, case["id"]


def test_a_translation_tells_warnings(api):
    specs = {**DEALT["extra_specs"], "resources:NET_EGRESS_BYTES_SEC": "5"}
    answer = api.post(TRANSLATION, {"flavor": {**DEALT, "extra_specs": specs}, "options": GRANULAR})
    assert (answer.status_code, answer.json["warnings"]) == (200, ["resource_class_ignored"])


def test_one_cluster_is_searched_whatever_the_groups_are(api):
    assert api.put("/ext/v1/clusters/north").status_code == 201
    inside, *_ = numa_host(api, "inside")
    numa_host(api, "outside")
    api.join(inside, api.get("/ext/v1/clusters/north").json["aggregate"])
    diskless = {**MASKED, "root_gb": 0}
    assert len(find(api, diskless, options=GRANULAR)["candidates"]["allocation_requests"]) == 4
    found = find(api, diskless, options=GRANULAR, cluster="north")["candidates"]
    assert len(found["allocation_requests"]) == 2
    assert {summary["root_provider_uuid"] for summary in found["provider_summaries"].values()} == {inside}
    flat = find(api, {"vcpus": 1, "memory_mb": 64}, cluster="north")["candidates"]
    assert {summary["root_provider_uuid"] for summary in flat["provider_summaries"].values()} == {inside}


def test_the_fallback_is_searched_where_nobody_reports_dedicated_cpus(api):
    api.provider("old", VCPU=4, MEMORY_MB=1024)
    options = {"pcpu_fallback": True}
    found = find(api, PINNED, options=options)
    assert found["query_used"] == "fallback_querystring"
    (request,) = found["candidates"]["allocation_requests"]
    ((_, entry),) = request["allocations"].items()
    assert entry["resources"] == {"VCPU": 2, "MEMORY_MB": 512}
    without = find(api, PINNED)
    assert (without["query_used"], without["candidates"]["allocation_requests"]) == ("querystring", [])
    api.provider("new", PCPU=4, MEMORY_MB=1024)
    assert find(api, PINNED, options=options)["query_used"] == "querystring"


def claimed(api: Client, consumer: str, flavor: dict[str, Any], status: int = 201, **parts: Any) -> Any:
    owner = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    answer = api.post("/ext/v1/claims", {**owner, "flavor": flavor, **parts})
    assert answer.status_code == status, answer.text
    return answer.json


def kept_cpus(api: Client, consumer: str) -> Any:
    listed = api.get("/ext/v1/allocations").json["consumers"]
    return next(each for each in listed if each["consumer_uuid"] == consumer).get("dedicated_cpus")


def test_dedicated_cpus_are_kept_with_a_consumer_until_something_else_is_claimed(api):
    host = api.provider("host", VCPU=8, PCPU=8, MEMORY_MB=4096, DISK_GB=10)
    consumer = str(uuid.uuid4())
    assert claimed(api, consumer, DEALT)["dedicated_cpus"] == "2-3,5-7"
    assert kept_cpus(api, consumer) == "2-3,5-7"
    again = claimed(api, consumer, DEALT, 200)
    assert (again["dedicated_cpus"], again["consumer_generation"]) == ("2-3,5-7", 1)
    assert kept_cpus(api, consumer) == "2-3,5-7"
    assert api.claim({host: {"PCPU": 3}}, consumer, 1, project_id="p", user_id="u").status_code == 204
    assert kept_cpus(api, consumer) is None


def test_a_claim_takes_the_fallback_and_keeps_the_cpus_of_the_flavor_that_was_claimed_last(api):
    api.provider("old", VCPU=8, MEMORY_MB=4096, DISK_GB=10)
    api.carry(api.provider("smt", VCPU=8, MEMORY_MB=4096, DISK_GB=10), "HW_CPU_HYPERTHREADING")
    consumer, options = str(uuid.uuid4()), {"pcpu_fallback": True}
    (held,) = claimed(api, consumer, PINNED, options=options)["allocations"].values()
    assert held["resources"]["VCPU"] == 2
    assert claimed(api, consumer, PINNED, 200, options=options)["dedicated_cpus"] == "0-1"
    assert kept_cpus(api, consumer) == "0-1"
    assert claimed(api, consumer, {**PINNED, "extra_specs": {}}, 200)["dedicated_cpus"] == ""
    assert kept_cpus(api, consumer) is None


ENDPOINTS = ("/ext/v1/flavors/translation", "/ext/v1/flavors/candidates")
PLAIN = {"vcpus": 2, "memory_mb": 512}


@pytest.fixture(params=ENDPOINTS)
def endpoint(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def with_specs(**specs: Any) -> dict[str, Any]:
    return {"flavor": {**PLAIN, "extra_specs": {key.replace("__", ":"): text for key, text in specs.items()}}}


def messages(answer: Any) -> list[str]:
    return [error["detail"].split("\n")[-1].strip() for error in answer.json["errors"]]


def test_every_problem_is_an_error_of_its_own_in_the_order_of_the_rules(embedded, endpoint):
    answer = embedded.post(
        endpoint, with_specs(hw__cpu_policy="foo", hw__numa_nodes="0", hw__cpu_dedicated_mask="x")
    )
    assert answer.status_code == 400
    assert [error["code"] for error in answer.json["errors"]] == [
        "cpu_policy_invalid",
        "cpuset_invalid",
        "numa_nodes_invalid",
    ]
    named = [message.split(":")[:2] for message in messages(answer)]
    assert named == [["hw", "cpu_policy"], ["hw", "cpu_dedicated_mask"], ["hw", "numa_nodes"]]
    for error in answer.json["errors"]:
        assert error.keys() == {"status", "title", "detail", "code", "request_id", "field", "suggestion"}
        assert (error["status"], error["title"]) == (400, "Bad Request")
        assert error["request_id"] == answer.headers["x-openstack-request-id"]


def test_other_media_types_get_all_problems_in_one_text(embedded, endpoint):
    body = with_specs(hw__cpu_policy="<b>", hw__numa_nodes="0")
    plain = embedded.post(endpoint, body, Accept="text/plain;q=1, application/json;q=0")
    assert plain.status_code == 406
    page = embedded.post(endpoint, body, Accept="text/html, application/json;q=0.5")
    assert page.status_code == 400
    assert "&#39;&lt;b&gt;&#39;" in page.text
    assert "hw:numa_nodes" in page.text


def test_bad_input_is_400_with_a_code(embedded: Client, endpoint):
    answer = embedded.post(endpoint, with_specs(hw__cpu_policy="x" * 10_000))
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (400, "cpu_policy_invalid")
    assert len(answer.data) < 10_000
    malformed = (b"{", b"\xff", b'{"flavor": NaN}', b'{"flavor": "\\ud800"}', b"[" * 100_000, b"")
    for body in (b"null", *malformed):
        answer = embedded.post(endpoint, body, Content_Type="application/json")
        assert answer.status_code == 400, answer.text
        code = "flavor_invalid" if body == b"null" else "placement.bad_request"
        assert answer.json["errors"][0]["code"] == code
        assert len(answer.data) < 10_000


def test_who_may_not_is_told_the_rule_and_only_posted_json_is_taken(embedded, endpoint):
    answer = embedded.as_("nobody").post(endpoint, {"flavor": PLAIN})
    assert answer.status_code == 403
    action = "translate" if endpoint.endswith("translation") else "candidates"
    assert f"placement:flavors:{action}" in detail(answer)
    assert embedded.as_(None).post(endpoint, {"flavor": PLAIN}).status_code == 401
    assert embedded.post(endpoint, b"{}", Content_Type="text/plain").status_code == 415
    assert embedded.get(endpoint).status_code == 405
