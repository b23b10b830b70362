"""Which microversion a request gets, and how it is told. Source: placement-api.md, "Versioning"."""

from __future__ import annotations

import json
import re
import uuid

import pytest

from tests.client import Client, detail, unique

HEADER = "OpenStack-API-Version"


def asking(api: Client, header: str | None, path: str = "/resource_classes/VCPU", **headers: str):
    sent = {"X-Auth-Token": "admin", **headers}
    if header is not None:
        sent[HEADER] = header
    return api.http.get(path, headers=sent)


def test_version_document_needs_no_token(embedded: Client):
    answer = embedded.as_(None).at(None).get("/")
    assert answer.status_code == 200
    assert answer.headers[HEADER] == "placement 1.0"
    assert answer.json == {
        "versions": [
            {
                "id": "v1.0",
                "max_version": "1.39",
                "min_version": "1.0",
                "status": "CURRENT",
                "links": [{"rel": "self", "href": ""}],
            }
        ]
    }


def test_version_document_ignores_query_and_accept(embedded: Client):
    assert embedded.get("/?what=ever", Accept="text/plain").json["versions"]


def test_version_document_answers_the_empty_path_below_a_prefix(embedded: Client):
    answer = embedded.http.get(
        "", base_url="http://localhost/placement/", environ_overrides={"PATH_INFO": ""}
    )
    assert answer.status_code == 200
    assert answer.json["versions"][0]["links"] == [{"rel": "self", "href": ""}]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_version_document_has_only_get_even_without_a_token(embedded: Client, method: str):
    answer = embedded.as_(None).call(method, "/")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize(("version", "cached"), [("1.14", False), ("1.15", True)])
def test_version_document_has_caching_headers_since_1_15(embedded: Client, version: str, cached: bool):
    headers = embedded.at(version).get("/").headers
    assert headers.get("Cache-Control") == ("no-cache" if cached else None)
    date = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
    assert bool(date.fullmatch(headers.get("Last-Modified", ""))) is cached


@pytest.mark.parametrize(
    ("header", "agreed"),
    [
        (None, "1.0"),
        ("placement latest", "1.39"),
        ("placement 1.39", "1.39"),
        ("placement 1.0", "1.0"),
        ("compute 2.1", "1.0"),
        ("1.5", "1.0"),
        ("latest", "1.0"),
        ("placement", "1.0"),
        ("placement 1.4, placement 1.6", "1.6"),
        ("compute 2.9, placement 1.6, identity 3.1", "1.6"),
        ("PLACEMENT 1.5", "1.5"),
        ("placement 1. 5", "1.5"),
        ("placement 1.010", "1.10"),
        ("placement 1.000000000000039", "1.39"),
    ],
)
def test_version_is_agreed_on(embedded: Client, header: str | None, agreed: str):
    answer = asking(embedded, header, "/resource_providers")
    assert answer.status_code == 200
    assert answer.headers[HEADER] == f"placement {agreed}"
    assert "openstack-api-version" in answer.headers["Vary"].lower()


def test_repeated_headers_count_like_one(embedded: Client):
    sent = [("X-Auth-Token", "admin"), (HEADER, "placement 1.4"), (HEADER, "placement 1.6")]
    assert embedded.http.get("/resource_providers", headers=sent).headers[HEADER] == "placement 1.6"


def test_any_blank_stands_before_the_version(embedded: Client):
    assert asking(embedded, None, "/", **{HEADER: "placement\t1.5"}).headers[HEADER] == "placement 1.5"


@pytest.mark.parametrize("old", ["OpenStack-Placement-API-Version", "X-OpenStack-Placement-API-Version"])
def test_legacy_headers_are_not_recognised(embedded: Client, old: str):
    assert asking(embedded, None, "/", **{old: "1.5"}).headers[HEADER] == "placement 1.0"


@pytest.mark.parametrize("sent", ["pony.horse", "1.2.3", "1", "LATEST", "1.5 foo", "1.x", "１.5"])
def test_version_that_cannot_be_read_is_400(embedded: Client, sent: str):
    answer = embedded.http.get(
        "/",
        headers={"X-Auth-Token": "admin"},
        environ_overrides={"HTTP_OPENSTACK_API_VERSION": f"placement {sent}"},
    )
    assert answer.status_code == 400
    assert f"invalid version string: {sent}" in detail(answer)
    assert HEADER not in answer.headers
    assert "code" not in answer.json["errors"][0]


@pytest.mark.parametrize("sent", ["0.5", "0.9", "1.40", "2.0", "-1.1", "1.99999999999999999999"])
def test_version_that_nobody_speaks_is_406_and_tells_the_range(embedded: Client, sent: str):
    answer = asking(embedded, f"placement {sent}")
    assert answer.status_code == 406
    assert f"Unacceptable version header: {sent}" in detail(answer)
    (error,) = answer.json["errors"]
    assert (error["min_version"], error["max_version"]) == ("1.0", "1.39")
    assert error["title"] == "Not Acceptable"
    assert "code" not in error
    assert HEADER not in answer.headers


def test_unacceptable_version_is_html_for_who_wants_html(embedded: Client):
    answer = asking(embedded, "placement 0.5", Accept="text/html")
    assert answer.status_code == 406
    assert answer.mimetype == "text/html"
    assert "Unacceptable version header: 0.5" in answer.text


def test_who_is_unknown_hears_that_before_the_version(embedded: Client):
    assert embedded.as_(None).at("0.5").get("/resource_providers").status_code == 401


def test_version_of_the_document_is_checked_too(embedded: Client):
    assert embedded.as_(None).at("1.40").get("/").status_code == 406


CACHED = [
    "GET /allocations/{consumer}",
    "GET /allocations/junk",
    "GET /usages?project_id=project",
    "GET /allocation_candidates?resources=VCPU:1",
    "GET /resource_classes",
    "GET /resource_classes/VCPU",
    "GET /resource_providers",
    "GET /resource_providers?name=nobody",
    "GET /resource_providers/{provider}/aggregates",
    "GET /resource_providers/{provider}/allocations",
    "GET /resource_providers/{provider}/inventories",
    "GET /resource_providers/{provider}/inventories/VCPU",
    "GET /resource_providers/{provider}/traits",
    "GET /resource_providers/{provider}/usages",
    "GET /traits",
    "GET /traits?name=in:",
    "GET /traits/HW_CPU_X86_VMX",
    "PUT /traits/CUSTOM_CACHED",
    'PUT /resource_providers/{provider} {"name": "renamed-%s"}',
    "PUT /resource_providers/{provider}/aggregates []",
    'PUT /resource_providers/{provider}/traits {"traits": [], "resource_provider_generation": %d}',
]


@pytest.mark.parametrize(("version", "cached"), [("1.14", False), ("1.15", True)])
def test_answers_have_caching_headers_since_1_15(embedded: Client, version: str, cached: bool):
    consumer, provider = str(uuid.uuid4()), embedded.provider(unique(), VCPU=8)
    embedded.claim({provider: {"VCPU": 1}}, consumer)
    for call in CACHED:
        method, path, *body = call.split(" ", 2)
        path = path.format(provider=provider, consumer=consumer)
        content = [
            json.loads(text.replace("%d", str(embedded.generation(provider))).replace("%s", version))
            for text in body
        ]
        answer = embedded.at(version).call(method, path, *content)
        assert answer.status_code < 300, call
        assert ("Last-Modified" in answer.headers) is cached, call
        assert (answer.headers.get("Cache-Control") == "no-cache") is cached, call
