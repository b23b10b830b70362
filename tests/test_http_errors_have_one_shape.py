"""Errors: one shape, the right status in the right order, in the form the caller accepts."""

from __future__ import annotations

import re
import uuid

import pytest

from tests.client import Client, code, detail, unique

REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOBODY = "/resource_providers/5d2f7c1e-3c7b-4a39-9a43-6a0f8f4d2b11"


def test_unknown_path_is_404_in_the_errors_form(embedded: Client):
    answer = embedded.get("/nope")
    assert answer.status_code == 404
    (error,) = answer.json["errors"]
    assert error["title"] == "Not Found"
    assert error["status"] == 404
    assert "The resource could not be found." in error["detail"]
    assert REQUEST_ID.fullmatch(error["request_id"])
    assert error["request_id"] == answer.headers["x-openstack-request-id"]
    assert "openstack-api-version" in answer.headers["Vary"].lower()
    for version, coded in (("1.22", None), ("1.23", "placement.undefined_code")):
        (error,) = embedded.at(version).get("/nope").json["errors"]
        assert error.get("code") == coded, version


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/*", "application/json"),
        ("text/html;q=0.1,application/json", "application/json"),
        ("text/html", "text/html"),
        ("text/html,application/json", "text/html"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("text/plain", "text/plain"),
        ("image/png", "text/plain"),
    ],
)
@pytest.mark.parametrize("path", ["/nope", "/traits/CUSTOM_NOPE"])
def test_errors_come_in_the_form_the_caller_accepts(
    embedded: Client, path: str, accept: str | None, kind: str
):
    answer = embedded.get(path, **({} if accept is None else {"Accept": accept}))
    assert answer.status_code == 404
    assert answer.mimetype == kind
    assert "The resource could not be found." in answer.text
    assert "<script>" not in embedded.get("/traits/<script>", Accept="text/html").text


def test_paths_match_exactly(embedded: Client):
    for path in (
        *(f"{NOBODY}/nope", f"{NOBODY}/inventories/", "/resource_providers/", "//", "//resource_providers"),
        *("/resource_providers//", "/resource_classes/A/B", "/allocations/", "/traits/CUSTOM_A\0"),
    ):
        environment = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
        answer = embedded.http.open(environ_overrides=environment, headers={"X-Auth-Token": "admin"})
        assert answer.status_code == 404, path
        assert "The resource could not be found." in answer.json["errors"][0]["detail"]


METHODS = {
    **dict.fromkeys(("/resource_providers", "/resource_classes"), "GET, POST"),
    **dict.fromkeys((f"{NOBODY}/usages", f"{NOBODY}/allocations"), "GET"),
    **dict.fromkeys(("/traits", "/allocation_candidates", "/usages"), "GET"),
    **dict.fromkeys((NOBODY, f"{NOBODY}/inventories/VCPU", f"{NOBODY}/traits"), "DELETE, GET, PUT"),
    **dict.fromkeys(("/resource_classes/VCPU", "/traits/CUSTOM_A", "/allocations/x"), "DELETE, GET, PUT"),
    **dict.fromkeys(("/allocations", "/reshaper"), "POST"),
    f"{NOBODY}/inventories": "DELETE, GET, POST, PUT",
    f"{NOBODY}/aggregates": "GET, PUT",
}


def test_methods_a_path_lacks_are_405_and_the_others_named(embedded: Client):
    for path, named in METHODS.items():
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} - {*named.split(", ")}:
            answer = embedded.call(method, path)
            assert answer.status_code == 405, (method, path)
            assert sorted(answer.headers["Allow"].split(", ")) == named.split(", "), path
            if method != "HEAD":
                assert detail(answer) == "The method specified is not allowed for this resource."
                (error,) = answer.json["errors"]
                assert f"The method {method} is not allowed for this resource." in error["detail"]
                assert error["title"] == "Method Not Allowed"
    # A missing method wins over a missing version.
    assert embedded.at("1.0").put("/traits").status_code == 405
    assert embedded.at("1.0").get("/traits").status_code == 404


def test_reading_needs_somebody_who_takes_json_and_only_bodies_of_reads_care(embedded: Client):
    for accept in (
        "text/plain",
        "application/json;q=0",
        "application/json;q=0,*/*",
        "text/html,application/xhtml+xml",
    ):
        answer = embedded.get("/resource_providers", Accept=accept)
        assert (answer.status_code, "Only application/json is provided" in answer.text) == (406, True), accept
    for accept in ("text/html,application/xhtml+xml,*/*;q=0.8", "application/*"):
        assert embedded.get("/resource_providers", Accept=accept).status_code == 200, accept
    assert embedded.get("/traits/HW_CPU_X86_VMX", Accept="text/plain").status_code == 204
    body = {"name": unique()}
    assert embedded.post("/resource_providers", body, Accept="text/plain").status_code == 200


def test_body_of_another_type_is_415_and_parameters_of_the_type_do_not_matter(embedded: Client):
    body = f'{{"name": "{unique()}"}}'.encode()
    for sent in ("text/plain", "application/x-yaml; a=b", None):
        typed = {} if sent is None else {"Content_Type": sent}
        answer = embedded.post("/resource_providers", None if sent is None else body, **typed)
        assert answer.status_code == 415
        assert detail(answer) == f"The media type {sent} is not supported, use application/json"
        assert answer.json["errors"][0]["title"] == "Unsupported Media Type"
    answer = embedded.post("/resource_providers", body, Content_Type="application/json; charset=utf-8")
    assert answer.status_code == 200


def test_body_without_a_type_and_length_that_is_no_number_are_400_on_every_path(embedded: Client):
    headers = {"X-Auth-Token": "admin"}
    for path in ("/resource_providers", "/nope", "/"):
        answer = embedded.http.post(path, data=b"{}", headers=headers)
        assert (answer.status_code, "content-type header required" in detail(answer)) == (400, True)
        for length in ("hi mom", "-1", "1.5", "²") if path != "/" else ():
            environment = {"CONTENT_LENGTH": length}
            answer = embedded.http.get(path, headers=headers, environ_overrides=environment)
            assert answer.status_code == 400, length
            assert "content-length header must be an integer" in detail(answer)


def test_no_token_is_401_before_anything_else(embedded: Client):
    for path in ("/resource_providers", "/nope", "/ext/v1/clusters"):
        answer = embedded.as_(None).at("0.5").get(path)
        assert answer.status_code == 401, path
        assert REQUEST_ID.fullmatch(answer.headers["x-openstack-request-id"])
        assert answer.json["errors"][0]["title"] == "Unauthorized"
        assert "OpenStack-API-Version" not in answer.headers


def test_user_without_a_role_is_403_with_the_rule(embedded: Client):
    answer = embedded.as_("user").get("/resource_providers")
    assert answer.status_code == 403
    assert detail(answer) == (
        "Policy does not allow placement:resource_providers:list to be performed."
        " With auth_strategy noauth2 the token `admin` has a role, others have none."
    )
    assert code(answer) == "placement.undefined_code"
    system = embedded.as_("admin", OpenStack_System_Scope="all")
    answer = system.get("/resource_providers")
    assert (answer.status_code, detail(answer)) == (403, "placement:resource_providers:list")
    assert system.get("/").status_code == 200


def test_sent_roles_replace_those_of_the_token(embedded: Client):
    for roles, status in (
        *(("admin", 200), ("service", 200), (" Member , ADMIN ", 200)),
        *(("member", 403), ("reader", 403), ("", 403)),
    ):
        caller = embedded.as_("admin", X_Roles=roles)
        assert caller.get("/resource_providers").status_code == status, roles
    # An empty token is a user without roles.
    assert embedded.as_("").get("/resource_providers").status_code == 403


def test_404_by_version_415_and_406_come_before_403_and_that_before_all_else(embedded: Client):
    member, aggregates = embedded.as_("member"), f"{NOBODY}/aggregates"
    assert member.at("1.0").get("/traits").status_code == 404
    assert member.post("/resource_providers", b"x", Content_Type="text/plain").status_code == 415
    assert member.get("/resource_providers", Accept="text/plain").status_code == 406
    # Media types of aggregates come before their version.
    assert embedded.at("1.0").put(aggregates, b"x", Content_Type="text/plain").status_code == 415
    assert embedded.at("1.0").get(aggregates, Accept="text/plain").status_code == 406
    assert embedded.at("1.0").get(aggregates).status_code == 404
    assert member.get(NOBODY).status_code == 403
    assert member.put("/allocations/junk", {}).status_code == 403
    assert member.get("/resource_providers?bogus=1").status_code == 403
    assert member.post("/resource_providers", b"{").status_code in (400, 415)
    assert member.post("/resource_providers", b"{", Content_Type="application/json").status_code == 403


def test_every_answer_has_a_request_id_of_its_own(embedded: Client):
    sent = f"req-{uuid.uuid4()}"
    for path in ("/", "/resource_providers", "/nope", "/resource_providers?bogus=1"):
        first = embedded.get(path, X_Openstack_Request_Id=sent).headers["x-openstack-request-id"]
        second = embedded.get(path).headers["x-openstack-request-id"]
        assert REQUEST_ID.fullmatch(first)
        assert len({first, second, sent}) == 3


def test_body_that_is_no_json_is_400(embedded: Client):
    wrong = (b"", b"{", b"\xef\xbb\xbf{}", b"[" * 5000)
    for body in (
        *wrong,
        *(b'{"name": %s}' % name for name in (b'"\xff"', b"NaN", b"-Infinity", b'"\\ud800"')),
    ):
        answer = embedded.post("/resource_providers", body, Content_Type="application/json")
        assert answer.status_code == 400, body
        assert detail(answer).startswith("Malformed JSON:")
    # The last of two equal keys counts.
    last = unique()
    body = f'{{"name": "first", "name": "{last}"}}'.encode()
    answer = embedded.post("/resource_providers", body, Content_Type="application/json")
    assert answer.json["name"] == last


def test_queries_are_checked_where_there_are_parameters(embedded: Client):
    for path in ("/resource_providers", "/allocation_candidates", "/usages", "/traits"):
        for query in ("%ff=1", "bogus=1"):
            answer = embedded.get(f"{path}?{query}")
            assert answer.status_code == 400, path
            assert detail(answer).startswith("Invalid query string parameters: ")
    for path in ("/resource_classes", "/resource_classes/VCPU", "/allocations/x", "/traits/HW_CPU_X86_VMX"):
        assert embedded.get(f"{path}?bogus=1&%ff=1").status_code in (200, 204)


def test_on_our_paths_each_finding_is_an_error_with_its_place_and_a_code(embedded: Client):
    body = {
        "groups": {"_a": {"resources": {"PCPU": "2", "VCPU": 0}}},
        "limit": 0,
        "colour": "red",
        "exlain": 1,
    }
    answer = embedded.post("/ext/v1/allocation_candidates", body)
    assert answer.status_code == 400
    assert [error["detail"] for error in answer.json["errors"]] == [
        "colour: there is no such member",
        "exlain: there is no such member; did you mean explain?",
        "groups['_a'].resources['PCPU']: '2' is not of type 'integer'",
        "groups['_a'].resources['VCPU']: 0 is less than the minimum of 1",
        "limit: 0 is less than the minimum of 1",
    ]
    assert {error["code"] for error in answer.json["errors"]} == {"placement.bad_request"}
    assert [(error["field"], error["suggestion"]) for error in answer.json["errors"]] == [
        ("/colour", None),
        ("/exlain", "explain"),
        ("/groups/_a/resources/PCPU", None),
        ("/groups/_a/resources/VCPU", None),
        ("/limit", None),
    ]
    # A pointer with a part of an odd name would lead nowhere, so it leads to the object.
    odd = {"groups": {"": {"resources": {"VCPU": 1}, "a/b c": 1}}}
    (unknown,) = embedded.post("/ext/v1/allocation_candidates", odd).json["errors"]
    assert (unknown["detail"], unknown["field"]) == (
        "groups[''].'a/b c': there is no such member",
        "/groups/",
    )
    # Clients of the Placement API expect one.
    (first,) = embedded.post("/reshaper", {"inventories": 1, "colour": 1}).json["errors"]
    assert "colour" in first["detail"]
    strange = embedded.get("/ext/v1/clusters?colour=red&size=1").json["errors"]
    assert [error["detail"].partition(" ")[0] for error in strange] == ["colour:", "size:"]
    (lacking,) = embedded.post("/ext/v1/allocation_candidates", {}).json["errors"]
    assert lacking["detail"] == "groups: is missing"
    (lacking,) = embedded.get("/ext/v1/allocation_candidates?clutser=x&resources=VCPU:1").json["errors"]
    assert lacking["detail"] == "clutser: is not a parameter of this request; did you mean cluster?"
    assert (lacking["field"], lacking["suggestion"]) == ("clutser", "cluster")
    # A query in a body is one text, so the place inside of it is in the sentence only.
    claim = {
        "consumer_uuid": str(uuid.uuid4()),
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
    }
    (unknown,) = embedded.post("/ext/v1/claims", {**claim, "query": "resources=VCPUU:1"}).json["errors"]
    assert (unknown["field"], unknown["suggestion"]) == ("/query", "VCPU")
    (wrong,) = embedded.post("/ext/v1/claims", {**claim, "query": "resources=VCPU:x"}).json["errors"]
    assert wrong["detail"].startswith("query: resources: Requested resource VCPU expected")
    assert wrong["field"] == "/query"
    # The routes of the Placement API keep the members of its errors.
    (first,) = embedded.get("/allocation_candidates?resources=VCPUU:1").json["errors"]
    assert first.keys() == {"status", "title", "detail", "code", "request_id"}


def test_an_answer_has_twenty_findings_at_most(embedded: Client):
    answer = embedded.post("/ext/v1/allocation_candidates", {"groups": {f"_{i:02}": 1 for i in range(21)}})
    assert [error["detail"] for error in answer.json["errors"]][18:] == [
        "groups['_18']: 1 is not of type 'object'",
        "there may be more",
    ]


@pytest.mark.parametrize(
    ("path", "coded"),
    [
        ("clusters/nowhere", "placement.cluster.not_found"),
        ("clusters/here/nodes/none", "placement.node.not_found"),
        ("clusters/here/pods/default/none", "placement.pod.not_found"),
        ("clusters/here/reservations/none", "placement.reservation.not_found"),
        ("nothing", "placement.not_found"),
    ],
)
def test_what_does_not_exist_on_our_paths_has_a_code(embedded: Client, path: str, coded: str):
    embedded.put("/ext/v1/clusters/here")
    answer = embedded.get(f"/ext/v1/{path}")
    assert (answer.status_code, code(answer)) == (404, coded)
    (error,) = embedded.at("1.0").get(f"/ext/v1/{path}").json["errors"]
    assert error["code"] == coded
    assert path != "nothing" or error["detail"] == "There is no such path; /openapi.json lists all."


def test_long_and_deep_values_are_not_echoed_and_messages_have_one_line(embedded: Client):
    answer = embedded.get("/resource_classes/CUSTOM_A%0AB")
    assert detail(answer) == "No such resource class CUSTOM_A B."
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    for body in ({"name": "x" * 100_000}, {"name": deep}, {"name": "a", **{f"k{i}": 1 for i in range(5000)}}):
        answer = embedded.post("/resource_providers", body)
        assert answer.status_code == 400
        assert len(answer.data) < 5000


def test_successful_bodies_are_plain_json_and_empty_answers_have_no_type(embedded: Client):
    assert embedded.get("/resource_providers").headers["Content-Type"] == "application/json"
    found = embedded.get("/traits/HW_CPU_X86_VMX")
    created = embedded.at("1.19").post("/resource_providers", {"name": unique()})
    assert (found.status_code, created.status_code) == (204, 201)
    assert "Content-Type" not in found.headers
    assert "Content-Type" not in created.headers
    assert created.headers["Content-Length"] == "0"


def test_links_and_locations_carry_the_prefix_of_the_mount(embedded: Client):
    mounted = "http://localhost/some/where/"
    name, headers = unique(), {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
    created = embedded.http.post(
        "/resource_providers", base_url=mounted, json={"name": name}, headers=headers
    )
    assert created.status_code == 200
    own = created.json["uuid"]
    assert created.headers["Location"] == f"{mounted}resource_providers/{own}"
    assert created.json["links"][0] == {"rel": "self", "href": f"/some/where/resource_providers/{own}"}
    shown = embedded.http.get("/resource_classes/VCPU", base_url=mounted, headers=headers)
    assert shown.json["links"] == [{"rel": "self", "href": "/some/where/resource_classes/VCPU"}]
