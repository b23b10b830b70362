"""What the flavor endpoints refuse: every problem is an error of its own, in order; nothing is a 500."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client, detail

ENDPOINTS = ("/ext/v1/flavors/translation", "/ext/v1/flavors/candidates")
FLAVOR = {"vcpus": 2, "memory_mb": 512}


@pytest.fixture(params=ENDPOINTS)
def endpoint(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def with_specs(**specs: Any) -> dict[str, Any]:
    return {
        "flavor": {**FLAVOR, "extra_specs": {key.replace("__", ":"): text for key, text in specs.items()}}
    }


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
        assert error.keys() == {"status", "title", "detail", "code", "request_id"}
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
        code = "flavor_invalid" if body == b"null" else "placement.undefined_code"
        assert answer.json["errors"][0]["code"] == code
        assert len(answer.data) < 10_000


def test_who_may_not_is_told_the_rule(embedded, endpoint):
    answer = embedded.as_("nobody").post(endpoint, {"flavor": FLAVOR})
    assert answer.status_code == 403
    action = "translate" if endpoint.endswith("translation") else "candidates"
    assert f"placement:flavors:{action}" in detail(answer)
    assert embedded.as_(None).post(endpoint, {"flavor": FLAVOR}).status_code == 401


def test_only_posted_json_is_taken(embedded, endpoint):
    assert embedded.post(endpoint, b"{}", Content_Type="text/plain").status_code == 415
    assert embedded.get(endpoint).status_code == 405
