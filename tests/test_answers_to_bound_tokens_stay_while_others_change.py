"""No answer to a token that is bound to clusters changes while only other clusters do.

Everything is asked twice. Between the two only another cluster and hosts in no cluster change. So no count,
no generation and no text may be of the whole service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import TestResponse

from placement.http import openapi_operations
from tests import test_bound_tokens_learn_of_no_other_cluster as learning
from tests.kubernetes import node_manifests, pod_manifest
from tests.reservations import reservation
from tests.test_bound_tokens_learn_of_no_other_cluster import EDGE, OWNER, Foreign, Request
from tests.two_fleets import ADMIN as EDGE_ADMIN
from tests.two_fleets import BATCH, NOWHERE, OPERATOR, POD, READER, SERVICE, Fleet, fleet

BATCH_PATH = "/ext/v1/clusters/batch"
# POSTs that change nothing.
_QUESTIONS = re.compile(
    r"/ext/v1/(allocation_candidates|capacity|plans|plans/check|flavors/candidates|flavors/translation)"
    r"|/ext/v1/clusters/[^/]+/(pods/preemption|pods/preview|pods/translation|extender/(filter|prioritize|preempt))"
    r"|/ui/(why|room|moves)"
)
# Common to the whole service (SECURITY.md), as in OpenStack Placement.
_COMMON = re.compile(r"/(traits|resource_classes)(\?.*)?")
# What differs from answer to answer.
_PASSING = re.compile(
    r"req-[0-9a-f-]{36}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:Z|\+00:00)?|\d\d:\d\d:\d\d|[0-9a-f]{64}"
    r'|(?<="uuid":")[0-9a-f-]{36}(?=","name":null)|"seconds":[0-9.e-]+|[\d.]+ s ago|in [\d.]+ s\b'
    r"|\d+ (second|minute)s? ago"
)
_GIVEN = re.compile('(?<="consumer_uuid":")[0-9a-f-]{36}')
_HEADERS = ("Location", "ETag", "Link", "Last-Modified")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("changing"), ["edge", "batch", "cloud"]) as found:
        members = [{"count": 3, "group": "tenant-a", "query": "cluster=batch&resources=PCPU:1"}]
        assert found.api.as_(BATCH).post("/ext/v1/claims", {**OWNER, "members": members}).status_code == 200
        yield found


foreign = learning.foreign


def own(fleet: Fleet) -> list[Request]:
    """Questions about what the caller has itself."""
    api = fleet.api.as_(EDGE_ADMIN)
    hosts = [host["uuid"] for host in api.get("/ext/v1/hosts?cluster=edge").json["hosts"]][:2]
    listed = api.get("/ext/v1/allocations?cluster=edge").json["consumers"]
    consumers = [each["consumer_uuid"] for each in listed][:2]
    pages = [
        "",
        "map",
        "map?cluster=edge",
        "map/data?cluster=edge",
        "map/hosts?cluster=edge",
        "hosts?cluster=edge",
    ]
    pages += [
        "figures",
        "why",
        "room",
        "room?cluster=edge",
        "moves?cluster=edge",
        "consumers?cluster=edge",
        "pods",
    ]
    pages += [
        "refusals",
        "search?q=edge",
        "names/queries",
        "names/clusters",
        "pods/edge/default/edge-only-pod",
    ]
    pages += ["sign-in", "changes", *(f"consumers/{uuid}" for uuid in consumers)]
    pages += [f"hosts/{host}{part}" for host in hosts for part in ("", "/drawing", "/providers")]
    asked = [f"/ui/{page}{form}" for page in pages for form in _forms(page)]
    parts = ("", "/inventories", "/traits", "/aggregates", "/usages", "/allocations")
    asked += [f"/resource_providers/{host}{part}" for host in hosts for part in parts]
    asked += [f"/allocations/{uuid}" for uuid in consumers]
    asked += [
        "/usages?project_id=packet-core",
        "/resource_providers",
        "/resource_providers?name=edge/edge-01",
    ]
    asked += [
        "/allocation_candidates?resources=PCPU:1&limit=5",
        "/ext/v1/clusters",
        "/ext/v1/aggregates",
        EDGE,
    ]
    asked += [f"{EDGE}{part}" for part in ("/nodes", "/pods", "/pods/default/edge-only-pod", "/reservations")]
    asked += [f"{EDGE}/nodes/edge-01", f"{EDGE}/reservations/edge-only-reservation"]
    large = {"more": [{"like": "edge/edge-01", "count": 99_999}]}
    kinds = {"a": {"querystring": "resources=PCPU:1"}, "b": {"pod": POD}}
    posted = [
        ("/ext/v1/capacity", {"cluster": "edge", "kinds": kinds, "by": ["cluster", "aggregate", "host"]}),
        ("/ext/v1/capacity", {"cluster": "edge", "kinds": {"a": kinds["a"]}, "world": large}),
        ("/ext/v1/claims", {**OWNER, "dry_run": True, "members": [_member(2)], "world": large}),
        ("/ext/v1/claims", {**OWNER, "dry_run": True, "members": [_member(2)]}),
        ("/ext/v1/claims", {**OWNER, "dry_run": True, "members": [_member(2000)]}),
    ]
    return [Request("GET", path) for path in asked] + [Request("POST", *each) for each in posted]


def _member(count: int) -> dict[str, Any]:
    return {"name": "m", "count": count, "query": "cluster=edge&resources=PCPU:1"}


def _forms(page: str) -> list[str]:
    sign = "&" if "?" in page else "?"
    return ["", f"{sign}format=json", f"{sign}format=csv"]


def of_the_document() -> Iterator[Request]:
    """The questions among the examples of /openapi.json, asked of each cluster."""
    for name, example in openapi_operations.examples().items():
        method, _, rule = name.partition(" ")
        path = rule
        for key, value in example.get("path", {}).items():
            path = path.replace(f"<{key}>", value)
        pairs: dict[str, Any] = {}
        for key, value in example.get("query", {}).items():
            pairs |= value if isinstance(value, dict) else {key: value}
        query = "&".join(f"{key}={each}" for key, value in pairs.items() for each in _listed(value))
        for cluster in ("edge", "cloud"):
            body = example.get("body") and json.loads(json.dumps(example["body"]).replace("cloud", cluster))
            yield Request(method, f"{path}{'?' if query else ''}{query.replace('cloud', cluster)}", body)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def questions(fleet: Fleet, foreign: Foreign) -> list[Request]:
    """Everything that may be asked without changing anything, whatever the answer may be."""
    found = [*learning.every_request(fleet, foreign), *own(fleet), *of_the_document()]
    asked = {
        each.method + each.sent: each
        for each in found
        if each.method == "GET"
        or (each.method == "POST" and _QUESTIONS.fullmatch(each.path))
        or (isinstance(each.body, dict) and each.body.get("dry_run"))
    }
    return [each for each in asked.values() if each.path not in ("/metrics", "/readyz", "/healthcheck")]


def text_of(answer: TestResponse) -> str:
    heads = " ".join(f"{name}: {answer.headers[name]}" for name in _HEADERS if name in answer.headers)
    return _PASSING.sub("*", f"{answer.get_data().decode(errors='backslashreplace')} {heads}")


def answers(fleet: Fleet, token: str, asked: list[Request]) -> list[tuple[int, str]]:
    api = fleet.api.as_(token)
    found = []
    for each in asked:
        # Health that nobody looks at for seconds is no health, and pages show it.
        fleet.look()
        answer = api.call(each.method, each.path, each.body)
        text = text_of(answer)
        # Consumers that are not named get a random uuid.
        text = _GIVEN.sub("*", text) if each.path == "/ext/v1/claims" else text
        found.append((answer.status_code, text))
    return found


def change_the_others(fleet: Fleet, number: int) -> None:
    """Change all that can be in another cluster and in none."""
    batch, operator = fleet.api.as_(BATCH), fleet.api.as_(OPERATOR)
    one = f"other{number}"
    labels = {f"batch.example/{one}": one}
    assert batch.put(BATCH_PATH, {"nodeLabels": [*labels], "description": one}).status_code == 200
    node = node_manifests(one, labels=labels, **{f"example.com__{one}": "4"})
    assert batch.put(f"{BATCH_PATH}/nodes/{one}", node).status_code == 201
    cordoned = node_manifests(f"{one}-cordoned", spec={"unschedulable": True})
    assert batch.put(f"{BATCH_PATH}/nodes/{one}-cordoned", cordoned).status_code == 201
    assert batch.put(f"{BATCH_PATH}/pods/default/{one}", pod_manifest("2")).status_code == 201
    assert batch.put(f"{BATCH_PATH}/reservations/{one}", reservation(one, "2")).status_code == 201
    assert batch.put(f"{BATCH_PATH}/pods/default/{one}-big", pod_manifest("4000")).status_code == 409
    for amount, status in ((1, 201), (100_000, 409)):
        claim = {**OWNER, "members": [{"count": 2, "query": f"cluster=batch&resources=PCPU:{amount}"}]}
        claimed = batch.post("/ext/v1/claims", claim).json["members"]
        assert {each["status"] for each in claimed} <= {status, 409}
    group = {"name": "m", "count": 1, "group": one, "query": "cluster=batch&resources=PCPU:1"}
    assert batch.post("/ext/v1/claims", {**OWNER, "consumer_type": f"T{number}", "members": [group]}).json
    for name in (f"CUSTOM_{one.upper()}", f"CUSTOM_AGAIN_{one.upper()}"):
        assert operator.put(f"/traits/{name}").status_code == 201
        assert operator.put(f"/resource_classes/{name}").status_code == 201
    host = operator.provider(f"unbound-{one}", VCPU=64, PCPU=64, **{f"CUSTOM_{one.upper()}": 5})
    operator.carry(host, f"CUSTOM_{one.upper()}")
    aggregate = f"0d000000-0000-4000-8000-{number:012}"
    operator.join(host, aggregate)
    assert operator.put(f"/ext/v1/aggregates/{aggregate}", {"name": one}).status_code < 300
    assert operator.claim({host: {"VCPU": 2}}).status_code == 204
    offered: dict[str, Any] = {"total": 64, "reserved": 63}
    offered["resource_provider_generation"] = operator.generation(host)
    assert operator.put(f"/resource_providers/{host}/inventories/VCPU", offered).status_code == 200
    assert operator.put(f"/ext/v1/clusters/{one}").status_code == 201


@pytest.mark.parametrize(
    "token", [SERVICE, EDGE_ADMIN, READER, NOWHERE], ids=["service", "admin", "reader", "nowhere"]
)
def test_no_answer_changes_while_only_others_do(whole: Fleet, foreign: Foreign, token: str):
    asked = questions(whole, foreign)
    before = answers(whole, token, asked)
    change_the_others(whole, [SERVICE, EDGE_ADMIN, READER, NOWHERE].index(token) + 1)
    after = answers(whole, token, asked)
    wrong = [
        (each.method, each.path, each.body, one[0], two[0], *_difference(one[1], two[1]))
        for each, one, two in zip(asked, before, after, strict=True)
        if one != two and not _COMMON.fullmatch(each.path)
    ]
    assert not wrong, "\n\n".join(map(str, [len(wrong), *wrong[:40]]))
    assert len(asked) > 500
    assert token in (READER, NOWHERE) or sum(status == 200 for status, _ in after) > 150


def _difference(one: str, two: str) -> tuple[str, str]:
    pairs = enumerate(zip(one, two, strict=False))
    at = next((at for at, (before, after) in pairs if before != after), min(len(one), len(two)))
    around = slice(max(0, at - 70), at + 70)
    return one[around], two[around]
