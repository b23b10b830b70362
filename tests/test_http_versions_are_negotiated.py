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


def test_version_document_ignores_query_and_accept_and_answers_the_empty_path(embedded: Client):
    assert embedded.get("/?what=ever", Accept="text/plain").json["versions"]
    mounted = {"base_url": "http://localhost/placement/", "environ_overrides": {"PATH_INFO": ""}}
    answer = embedded.http.get("", **mounted)
    assert answer.status_code == 200
    assert answer.json["versions"][0]["links"] == [{"rel": "self", "href": ""}]


@pytest.mark.parametrize(
    ("accept", "is_browser"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html", True),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/html", False),
        ("application/json, text/html;q=0.9", False),
        ("", False),
    ],
)
def test_only_browsers_are_sent_from_the_version_document_to_the_pages(
    embedded: Client, accept: str, is_browser: bool
):
    answer = embedded.as_(None).at(None).get("/", Accept=accept)
    assert answer.status_code == (302 if is_browser else 200)
    assert answer.headers.get("Location") == ("/ui/" if is_browser else None)
    mounted = {"base_url": "http://localhost/placement/", "environ_overrides": {"PATH_INFO": ""}}
    answer = embedded.http.get("", headers={"Accept": accept}, **mounted)
    assert answer.headers.get("Location") == ("/placement/ui/" if is_browser else None)


def test_a_header_that_does_not_name_the_service_is_told_from_none(embedded: Client):
    said = "send openstack-api-version: placement 1.10, or up to 1.39"
    unversioned = embedded.at(None)
    for sent, more in (({}, ""), ({HEADER: "1.39"}, "; the one that was sent does not name placement")):
        answer = unversioned.get("/allocation_candidates?resources=VCPU:1", **sent)
        assert answer.status_code == 404
        assert detail(answer).endswith(f"this request is of 1.0: {said}{more}")


def test_version_document_has_only_get_even_without_a_token(embedded: Client):
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
        answer = embedded.as_(None).call(method, "/")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET"), method


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


def test_repeated_headers_count_like_one_and_others_not_at_all(embedded: Client):
    sent = [("X-Auth-Token", "admin"), (HEADER, "placement 1.4"), (HEADER, "placement 1.6")]
    assert embedded.http.get("/resource_providers", headers=sent).headers[HEADER] == "placement 1.6"
    # Any blank stands before the version.
    assert asking(embedded, "placement\t1.5", "/").headers[HEADER] == "placement 1.5"
    for old in ("OpenStack-Placement-API-Version", "X-OpenStack-Placement-API-Version"):
        assert asking(embedded, None, "/", **{old: "1.5"}).headers[HEADER] == "placement 1.0"


def test_version_that_cannot_be_read_is_400(embedded: Client):
    for sent in ("pony.horse", "1.2.3", "1", "LATEST", "1.5 foo", "1.x", "１.5"):
        version = {"HTTP_OPENSTACK_API_VERSION": f"placement {sent}"}
        answer = embedded.http.get("/", headers={"X-Auth-Token": "admin"}, environ_overrides=version)
        assert answer.status_code == 400, sent
        assert f"invalid version string: {sent}" in detail(answer)
        assert HEADER not in answer.headers
        assert "code" not in answer.json["errors"][0]


def test_version_that_nobody_speaks_is_406_and_tells_the_range(embedded: Client):
    for sent in ("0.5", "0.9", "1.40", "2.0", "-1.1", "1.99999999999999999999"):
        answer = asking(embedded, f"placement {sent}")
        assert answer.status_code == 406, sent
        assert f"Unacceptable version header: {sent}" in detail(answer)
        (error,) = answer.json["errors"]
        assert (error["min_version"], error["max_version"]) == ("1.0", "1.39")
        assert (error["title"], "code" in error) == ("Not Acceptable", False)
        assert HEADER not in answer.headers
    # Of the document, too, but who is unknown hears that before the version of anything else.
    assert embedded.as_(None).at("1.40").get("/").status_code == 406
    assert embedded.as_(None).at("0.5").get("/resource_providers").status_code == 401
    answer = asking(embedded, "placement 0.5", Accept="text/html")
    assert (answer.status_code, answer.mimetype) == (406, "text/html")
    assert "Unacceptable version header: 0.5" in answer.text


CACHED = [
    "GET /allocations/{consumer}",
    "GET /allocations/junk",
    "GET /usages?project_id=project",
    "GET /allocation_candidates?resources=VCPU:1",
    *(f"GET /resource_classes{path}" for path in ("", "/VCPU")),
    *(f"GET /resource_providers{path}" for path in ("", "?name=nobody")),
    *(
        f"GET /resource_providers/{{provider}}/{part}"
        for part in ("aggregates", "allocations", "inventories", "inventories/VCPU", "traits", "usages")
    ),
    *(f"GET /traits{path}" for path in ("", "?name=in:", "/HW_CPU_X86_VMX")),
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
