"""Pages pass the gate of the API, forms need their key, and what is wrong is said on a page."""

from __future__ import annotations

import base64
import csv
import datetime
import logging
import random
import re
import struct
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import orjson
import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client import REGISTRY
from werkzeug.formparser import FormDataParser
from werkzeug.test import TestResponse

from placement import sessions
from placement.common.clock import utcnow
from placement.http.credentials import SECURE_SESSION_COOKIE, SESSION_COOKIE
from placement.http.registry import registry_of
from placement.sessions import MOST_OF_A_USER, Sessions
from placement.storage import database as storage
from placement.storage import tables
from placement.storage.database import Database
from placement.web import passwords, search
from tests.client import Client
from tests.conftest import application_on, compatible
from tests.identity_service import IdentityService, project_token
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS, eventually
from tests.test_http_never_fails_on_odd_input import ODD_TEXTS

ADMIN, BOUND, NOBODY = ("token-of-the-administrator-" + "a" * 20, "token-of-edge-" + "b" * 30, "c" * 40)
TOKENS = f"""
{ADMIN}: {{user: root, project: ops, roles: [admin]}}
{BOUND}: {{user: edge, project: ops, roles: [admin], clusters: [edge]}}
{NOBODY}: {{user: guest, project: shop, roles: [member]}}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: pasted, namespace: default}
spec:
  containers:
  - name: main
    image: example.org/main
    env: [{name: PASSWORD, value: secret}]
    resources: {requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}
"""
FORM_KEY = re.compile(r'name="form_key" value="([0-9a-f]{64})"')


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    file = tmp_path_factory.mktemp("tokens") / "tokens.yaml"
    file.write_text(TOKENS)
    file.chmod(0o600)
    with application_on(
        "sqlite", settings=compatible(auth_strategy="token", tokens_file=file)
    ) as application:
        client = Client(application.test_client(), token=ADMIN)
        for cluster in ("edge", "other"):
            assert client.put(f"/ext/v1/clusters/{cluster}").status_code == 201
        yield application.test_client()


@pytest.fixture
def visitor(guarded: FlaskClient) -> FlaskClient:
    """A browser without cookies."""
    return guarded.application.test_client()


@pytest.fixture
def admin(visitor: FlaskClient) -> FlaskClient:
    """A browser in which the administrator is signed in."""
    sign_in(visitor, ADMIN)
    return visitor


@pytest.fixture
def api(guarded: FlaskClient) -> Client:
    """Requests of the administrator to the API of the same service."""
    return Client(guarded.application.test_client(), token=ADMIN)


def form_key(client: FlaskClient, path: str = "/ui/sign-in") -> str:
    found = FORM_KEY.search(client.get(path).text)
    assert found is not None
    return found[1]


def sign_in(client: FlaskClient, token: str, **fields: str) -> TestResponse:
    return client.post("/ui/sign-in", data={"form_key": form_key(client), "token": token, **fields})


def test_who_is_not_known_signs_in_and_comes_back(visitor: FlaskClient):
    refused = visitor.get("/ui/map?by=cores")
    assert refused.status_code == 303
    assert refused.location.endswith("/ui/sign-in?back=%2Fui%2Fmap%3Fby%3Dcores")
    wrong = sign_in(visitor, "no-such-token")
    assert wrong.status_code == 401
    assert "This token is not known here" in wrong.text
    right = sign_in(visitor, ADMIN, back="/ui/map?by=cores")
    assert (right.status_code, right.location) == (303, "/ui/map?by=cores")
    cookie = right.headers["Set-Cookie"]
    assert cookie.startswith(f"{SESSION_COOKIE}=t.")
    assert {"HttpOnly", "SameSite=Strict", "Path=/ui/"} <= set(cookie.split("; "))
    assert ADMIN not in right.text + right.headers.get("Location", "")
    assert visitor.get("/ui/map?by=cores").status_code == 200


def test_the_cookie_is_for_encrypted_connections_only_where_there_are_any(visitor: FlaskClient):
    answer = visitor.get("/ui/sign-in", base_url="https://placement.example")
    assert "Secure" in answer.headers["Set-Cookie"].split("; ")


def test_over_encrypted_connections_only_the_cookie_counts_that_no_other_host_can_set(visitor: FlaskClient):
    there = {"base_url": "https://placement.example"}
    key = FORM_KEY.search(visitor.get("/ui/sign-in", **there).text)
    assert key is not None
    given = {"form_key": key[1], "token": ADMIN}
    cookie = visitor.post("/ui/sign-in", data=given, **there).headers["Set-Cookie"]
    name, _, rest = cookie.partition("=")
    assert name == SECURE_SESSION_COOKIE
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(rest.split("; "))
    assert "Domain" not in rest
    assert visitor.get("/ui/", **there).status_code == 200
    value = rest.partition(";")[0]
    other = visitor.application.test_client()
    other.set_cookie(SESSION_COOKIE, value, domain="placement.example", path="/ui/")
    assert other.get("/ui/", **there).status_code == 303


def session_of(client: FlaskClient) -> str:
    cookie = client.get_cookie(SESSION_COOKIE, path="/ui/")
    assert cookie is not None
    return cookie.value


def test_a_copied_cookie_ends_with_its_session(admin: FlaskClient, visitor: FlaskClient):
    """It tells nothing of the token, and no spelling of it is another session."""
    value = session_of(admin)
    thief = visitor.application.test_client()
    thief.set_cookie(SESSION_COOKIE, value, path="/ui/")
    assert thief.get("/ui/").status_code == 200
    random = base64.urlsafe_b64decode(value.removeprefix("t."))
    assert ADMIN.encode() not in random
    for other in (f"{value}=", value.replace("t.", "t. "), value[:-4]):
        forged = visitor.application.test_client()
        forged.set_cookie(SESSION_COOKIE, other, path="/ui/")
        assert forged.get("/ui/").status_code == 303, other
    assert admin.post("/ui/sign-out", data={"form_key": form_key(admin, "/ui/")}).status_code == 303
    for path in ("/ui/", "/ui/map/data"):
        assert thief.get(path, headers={"X-Requested-With": "placement"}).status_code == 401
    assert thief.post("/ui/sign-out", data={"form_key": "x"}).status_code == 403


def test_a_session_ends_after_its_time(admin: FlaskClient, monkeypatch: pytest.MonkeyPatch):
    later = utcnow() + datetime.timedelta(seconds=Sessions.seconds + 1)
    monkeypatch.setattr(sessions, "utcnow", lambda: later)
    assert admin.get("/ui/").status_code == 303


def test_a_session_that_began_while_the_clock_was_ahead_ends_when_it_is_right(
    visitor: FlaskClient, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as ahead:
        ahead.setattr(storage, "utcnow", lambda: utcnow() + datetime.timedelta(days=400))
        sign_in(visitor, ADMIN)
    assert visitor.get("/ui/").status_code == 303
    database = registry_of(visitor.application)[Database]
    sign_in(visitor, ADMIN)
    with database.read() as connection:
        assert len(connection.execute(sa.select(tables.sessions)).all()) == 1
    # Clocks of two processes may be a little apart.
    with monkeypatch.context() as behind:
        behind.setattr(sessions, "utcnow", lambda: utcnow() - datetime.timedelta(seconds=30))
        assert visitor.get("/ui/").status_code == 200


def test_cookies_that_are_no_session_ask_no_database(visitor: FlaskClient, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(Sessions, "token_of", lambda _, cookie: asked.append(cookie))
    for value in ("t.", "t.x", "t.abc", "t.a b=", "t.ab*=", "t." + "A" * 3804, "t.abcd="):
        visitor.set_cookie(SESSION_COOKIE, value, path="/ui/")
        assert visitor.get("/ui/").status_code == 303, value
    assert asked == []
    visitor.set_cookie(SESSION_COOKIE, "t." + "A" * 3800, path="/ui/")
    assert visitor.get("/ui/").status_code == 303
    assert len(asked) == 1


def test_signing_out_is_logged_with_its_user(admin: FlaskClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    user = ("user: root", "user: -")
    key = form_key(admin, "/ui/")
    copy = session_of(admin)
    assert admin.post("/ui/sign-out", data={"form_key": key}).status_code == 303
    admin.set_cookie(SESSION_COOKIE, copy, path="/ui/")
    admin.post("/ui/sign-out", data={"form_key": key})
    lines = [line for line in caplog.messages if "/ui/sign-out" in line and line.startswith("user: ")]
    assert len(lines) == 2
    assert all(line.startswith(start) for line, start in zip(lines, user, strict=True)), lines


def test_sessions_of_a_user_are_bounded_and_the_latest_stay(guarded: FlaskClient):
    clients = [guarded.application.test_client() for _ in range(MOST_OF_A_USER + 2)]
    for client in clients:
        sign_in(client, BOUND)
    shown = [client.get("/ui/").status_code for client in clients]
    assert shown == [303] * 2 + [200] * MOST_OF_A_USER


def test_the_database_has_nothing_that_tells_of_a_token(admin: FlaskClient):
    database = registry_of(admin.application)[Database]
    with database.read() as connection:
        rows = connection.execute(sa.select(tables.sessions)).all()
    assert rows
    value = session_of(admin).removeprefix("t.")
    for row in rows:
        assert ADMIN[:8] not in repr(tuple(row))
        assert value not in repr(tuple(row))


def test_nobody_is_sent_elsewhere_after_signing_in(visitor: FlaskClient):
    for back in ("https://evil.example/", "//evil.example/ui/", "/ui/\\evil", "/resource_providers"):
        assert sign_in(visitor.application.test_client(), ADMIN, back=back).location == "/ui/", back


def test_a_session_that_ended_says_so(visitor: FlaskClient):
    visitor.set_cookie(SESSION_COOKIE, "t.Z29uZS1nb25lLWdvbmUtZ29uZS1nb25lLWdvbmUtZ29uZQ==", path="/ui/")
    ended = visitor.get("/ui/consumers")
    assert ended.status_code == 303
    assert "Your session has ended" in visitor.get(ended.location).text
    # Scripts and programs are told in a form that they understand.
    assert visitor.get("/ui/consumers?format=json").status_code == 401
    assert visitor.get("/ui/consumers", headers={"X-Requested-With": "placement"}).status_code == 401


def test_signing_out_takes_the_token_away(admin: FlaskClient):
    answer = admin.post("/ui/sign-out", data={"form_key": form_key(admin, "/ui/")})
    assert answer.headers["Set-Cookie"].startswith(f"{SESSION_COOKIE}=a.")
    assert admin.get("/ui/").status_code == 303


def test_forms_without_the_key_of_the_session_do_nothing(admin: FlaskClient):
    stranger = form_key(admin.application.test_client())
    for path in ("/ui/claims", "/ui/pod-claims", "/ui/sign-out", "/ui/sign-in"):
        for data in ({"other": "1"}, {"form_key": stranger}, {"form_key": "\N{SNOWMAN}"}):
            answer = admin.post(path, data=data)
            assert answer.status_code == 403, path
            assert "nothing was done" in answer.text
    assert admin.post("/ui/claims", json={"form_key": form_key(admin, "/ui/why")}).status_code == 415


@pytest.mark.parametrize("path", ["/ui/sign-in", "/ui/sign-out", "/ui/claims"])
def test_forms_that_do_nothing_are_not_parsed(admin: FlaskClient, monkeypatch: pytest.MonkeyPatch, path: str):
    parsed, form = [], "application/x-www-form-urlencoded"
    monkeypatch.setattr(FormDataParser, "parse", lambda *given, **named: parsed.append(given))
    for body, media_type, status in (
        (b"a=1&" * 100 + b"a=1", form, 400),
        (b"a=" + b"1" * 2**20, form, 413),
        (b"\r\n" * 1000, "multipart/form-data; boundary=x", 415),
        (b"{}", "application/json", 415),
    ):
        assert admin.post(path, data=body, content_type=media_type).status_code == status, media_type
    # Who has no cookie is not signed in, and sent to the page for that before a form is looked at.
    unknown = admin.application.test_client().post(path, data=b"a=1", content_type=form)
    assert unknown.status_code == (303 if path == "/ui/claims" else 403)
    assert parsed == []


def test_a_form_may_have_the_size_of_a_manifest(admin: FlaskClient):
    # Each `#` takes three bytes in a form.
    data = {"form_key": form_key(admin, "/ui/"), "cluster": "edge", "pod": "#" * 300_000}
    assert admin.post("/ui/pod-claims", data=data).status_code == 400


@pytest.mark.parametrize(
    ("page", "kind", "fields"),
    [
        ("why", "pod", {"pod": POD}),
        ("why", "flavor", {"vcpus": "1", "specs": "hw:cpu_policy=dedicated\n:secret=1"}),
        ("room", "pod", {"pod": POD}),
        ("room", "flavor", {"vcpus": "1", "specs": "hw:cpu_policy=dedicated\n:secret=1"}),
        ("moves", "pod", {"pod": POD, "goal": "fit"}),
        ("moves", "flavor", {"vcpus": "1", "specs": ":secret=1", "goal": "defragment"}),
    ],
)
def test_what_is_pasted_into_a_form_is_in_no_address(
    admin: FlaskClient, caplog: pytest.LogCaptureFixture, page: str, kind: str, fields: dict[str, str]
):
    goal = {"goal": fields["goal"]} if "goal" in fields else {}
    empty = admin.get(f"/ui/{page}", query_string={"kind": kind, **goal}).text
    assert f'<form class="ask" action="/ui/{page}" method=post>' in empty
    data = {"form_key": form_key(admin, "/ui/"), "kind": kind, "cluster": "edge", **fields}
    with caplog.at_level("INFO"):
        asked = admin.post(f"/ui/{page}", data=data)
        # What the answer offers as JSON and CSV is asked for in the body, too.
        assert asked.status_code == 200, asked.text
        resent = asked.text.partition(f'<form id="resent" method="post" action="/ui/{page}">')[2].partition(
            "</form>"
        )[0]
        # The first line end in a text area is not a part of its value.
        areas = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n?([^<]*)</textarea>', resent)
        assert {name: unescape(value) for name, value in areas} | {"form_key": data["form_key"]} == data
        for form, media_type in (("json", "application/json"), ("csv", "text/csv")):
            answer = admin.post(f"/ui/{page}", data={**data, "format": form})
            assert (answer.status_code, answer.mimetype) == (200, media_type)
    assert admin.post(f"/ui/{page}", data={**data, "form_key": "x"}).status_code == 403
    assert f'"POST /ui/{page}"' in caplog.text
    assert "secret" not in caplog.text


def test_a_form_of_another_cluster_is_refused(visitor: FlaskClient):
    sign_in(visitor, BOUND)
    data = {"form_key": form_key(visitor, "/ui/"), "kind": "pod", "pod": POD}
    for page in ("why", "room", "moves"):
        for cluster, status in (("other", 403), ("edge", 200)):
            answer = visitor.post(f"/ui/{page}", data={**data, "cluster": cluster})
            assert answer.status_code == status, (page, cluster)


def test_what_a_role_may_not_see_is_neither_shown_nor_given(visitor: FlaskClient):
    sign_in(visitor, NOBODY)
    for path in ("", "map", "map/data", "consumers", "orphans", "changes", "refusals", "search?q=a"):
        answer = visitor.get(f"/ui/{path}")
        assert answer.status_code == 403, path
        assert "Policy does not allow" in answer.text
        assert "/ui/map" not in answer.text
        assert "/ui/changes" not in answer.text
        assert "roles</span> member</span>" in answer.text
        assert "Sign out, and in as another user" in answer.text
        assert "To the overview" not in answer.text, "it would be refused, too"
    data = {"form_key": form_key(visitor, "/ui/"), "consumer_uuid": str(uuid.uuid4())}
    assert visitor.post("/ui/claims", data=data).status_code == 403


def test_a_token_that_is_bound_to_a_cluster_sees_that_cluster(visitor: FlaskClient):
    sign_in(visitor, BOUND)
    overview = visitor.get("/ui/")
    assert overview.status_code == 200
    assert "/ui/map?cluster=edge" in overview.text
    assert ">other<" not in overview.text
    assert [group["name"] for group in visitor.get("/ui/?format=json").json["groups"]] == ["edge"]
    assert visitor.get("/ui/map?cluster=edge").status_code == 200
    assert visitor.get("/ui/pods?cluster=edge").status_code == 200
    assert ">other<" not in visitor.get("/ui/consumers?cluster=edge").text
    query = "kind=query&query=resources%3DVCPU:1"
    asked = (f"{query}&cluster=other", f"{query}%26cluster%3Dother&cluster=edge", query)
    for path in (
        *("map", "map?cluster=other", "map/data?cluster=other", "pods?cluster=other", "pods/other/a/b"),
        *("nodes/other/a", "consumers", "consumers?cluster=other", "moves"),
        *(f"{page}?{each}" for page in ("why", "room") for each in asked),
        *(f"{page}?kind=flavor&vcpus=1&cluster=other" for page in ("why", "room")),
        *("moves?goal=free&free=1&cluster=other", "room?kind=pod&cluster=other&pod=kind:+Pod"),
    ):
        answer = visitor.get(f"/ui/{path}")
        assert answer.status_code in (400, 403), path
        assert b"candidates</h2>" not in answer.data
        assert b"Room for" not in answer.data
    assert visitor.get("/ui/search?q=o&format=json").json == {"q": "o", "found": []}


def test_what_would_refuse_a_bound_token_has_no_link(visitor: FlaskClient, api: Client):
    assert api.put("/ext/v1/clusters/edge/nodes/held", node_manifests("held")).status_code == 201
    pod = pod_manifest()
    assert api.put("/ext/v1/clusters/edge/pods/default/held", pod).status_code == 201
    for token, links in ((ADMIN, True), (BOUND, False)):
        browser = visitor.application.test_client()
        sign_in(browser, token)
        consumer = browser.get("/ui/pods/edge/default/held?format=json").json["consumer_uuid"]
        for path in ("consumers?cluster=edge", "pods/edge/default/held", "search?q=" + consumer[:13]):
            page = browser.get(f"/ui/{path}", follow_redirects=True)
            assert page.status_code == 200, path
            assert consumer in page.text, path
            assert (f"/ui/consumers/{consumer}" in page.text) is links, (path, token)
        known = browser.get("/ui/names/clusters").json["names"]
        assert known == (["edge", "other"] if links else ["edge"])
    for path in ("pods/default/held", "nodes/held"):
        assert api.delete(f"/ext/v1/clusters/edge/{path}").status_code == 204


def test_browsers_are_told_what_pages_may_do(admin: FlaskClient):
    for path in ("/ui/", "/ui/sign-in", "/ui/no-such-page", "/ui/map/data", "/ui/static/pages.js"):
        headers = admin.get(path).headers
        rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
        assert set(rules.values()) == {"'self'", "'none'"}
        assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
    page = admin.get("/ui/").text
    assert not re.search(r"<script>|\son[a-z]+=|style=|https?://(?!localhost)", page)


def test_bad_input_is_a_page_that_says_what_to_do(admin: FlaskClient):
    gone = str(uuid.uuid4())
    for path, status, said in (
        (f"/ui/hosts/{gone}", 404, f"No resource provider with uuid {gone} found"),
        ("/ui/nodes/edge/gone", 404, "No node gone found in cluster edge"),
        ("/ui/map/host/99", 404, "This host is gone"),
        (f"/ui/consumers/{gone}", 404, "holds nothing"),
        ("/ui/consumers/x", 404, "is not a UUID"),
        ("/ui/pods/edge/default/gone", 404, "gone"),
        ("/ui/no/such/page", 404, "There is no page /ui/no/such/page"),
        ("/ui/why?kind=pod&cluster=edge&pod=%7B%7B", 400, "Malformed YAML"),
        ("/ui/why?kind=pod&cluster=edge&pod=kind:+Node", 400, "Node"),
        ("/ui/why?kind=pod&cluster=none&pod=kind:+Pod", 404, "none"),
        ("/ui/why?kind=query&query=resources", 400, "resources"),
        ("/ui/why?kind=query&query=resources%3DVCPU:1&limit=9999", 400, "limit"),
        ("/ui/why?kind=query&query=resources%3DVCPU:1&limit=0000002009999999", 400, "limit"),
        ("/ui/why?kind=query&query=resources%3DVCPU:1%26limit%3D201", 400, "limit: must be 1 to 200"),
        ("/ui/consumers?user_id=%00", 400, "NUL"),
        ("/ui/why?kind=flavor&vcpus=many", 400, "vCPUs: must be a whole number"),
        ("/ui/why?kind=flavor&vcpus=0", 400, "vCPUs: must be a whole number"),
        ("/ui/why?kind=flavor&vcpus=1&specs=hw:cpu_policy", 400, "KEY=VALUE"),
        ("/ui/why?kind=flavor&vcpus=1&specs=hw:cpu_policy%3Dodd", 400, "hw:cpu_policy"),
        ("/ui/why?kind=song", 400, "kind"),
        (
            "/ui/room?kind=query&query=resources%3DVCPU:1&without=gone",
            400,
            "Without these hosts: there is no host 'gone'",
        ),
        ("/ui/room?kind=query&query=limit%3D3", 400, "limit"),
        ("/ui/room?kind=pod&pod=kind:+Pod", 400, "cluster"),
        ("/ui/room?kind=song", 400, "kind"),
        ("/ui/moves?goal=song", 400, "goal"),
        ("/ui/moves?goal=free&free=many", 400, "free"),
        ("/ui/moves?goal=empty&hosts=gone", 400, "Hosts to empty: there is no host 'gone' here"),
        ("/ui/map?by=song", 400, "by"),
        ("/ui/map/data?class=SONG", 400, "SONG"),
        ("/ui/map/hosts?ids=a", 400, "ids"),
        ("/ui/hosts?page=0", 400, "page"),
        ("/ui/changes?marker=x", 400, "marker"),
        ("/ui/changes/999999", 404, "There is no change 999999"),
        ("/ui/changes/x", 404, "There is no change x"),
        (f"/ui/hosts/{gone}/providers", 404, gone),
        (f"/ui/hosts/{gone}/drawing", 404, gone),
        ("/ui/?format=song", 400, "format"),
    ):
        answer = admin.get(path)
        assert answer.status_code == status, (path, answer.text)
        assert said in answer.text.replace("&#39;", "'"), path
        assert "<nav aria-label" in answer.text, "a page with the way on"
    for path in ("/ui/why?resources=VCPU:1&path=x", "/ui/room?required=CUSTOM_X&path="):
        assert admin.get(path).status_code == 303, path
    assert admin.get("/ui/room?kind=query&query=resources%3DVCPU:99999%26by%3Dhost").status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("why", {"kind": "query", "query": "resouces=VCPU:1", "limit": "7"}),
        ("why", {"kind": "pod", "cluster": "none", "pod": POD}),
        ("room", {"kind": "query", "query": "resources=VCPU:1", "cluster": "none", "without": "a"}),
        ("room", {"kind": "flavor", "vcpus": "1", "specs": "hw:cpu_policy"}),
        ("moves", {"goal": "fit", "kind": "query", "query": "resources=VCPUS:1", "count": "3", "moves": "5"}),
        ("moves", {"goal": "empty", "hosts": "gone, lost", "moves": "9"}),
    ],
)
def test_what_was_typed_is_still_there_beside_what_is_wrong(
    admin: FlaskClient, path: str, fields: dict[str, str]
):
    answer = admin.get(f"/ui/{path}", query_string=fields)
    assert answer.status_code in (400, 404)
    assert '<div class="problem" role="alert">' in answer.text
    given = [admin.get(f"/ui/{path}", query_string={**fields, "format": form}) for form in ("json", "csv")]
    assert {each.status_code for each in given} == {answer.status_code}
    assert list(csv.reader(given[1].text.splitlines())) == [
        ["problem"],
        *([text] for text in given[0].json["problems"]),
    ]
    shown = unescape(answer.text)
    for name, value in fields.items():
        assert f'name="{name}"' in shown
        assert f">{value}<" in shown or f'value="{value}"' in shown, name


def test_no_odd_address_makes_a_page_fail(admin: FlaskClient):
    # The same numbers each time: a failure must be found again.
    dice = random.Random(20)
    named = "map map/data map/hosts hosts why room moves consumers pods orphans changes refusals search"
    pages = ["", *named.split()]
    pages += [f"{page}?kind=flavor&vcpus=1" for page in ("room", "why")]
    pages += [f"{page}?kind=query&query=resources%3DVCPU:1" for page in ("room", "why")]
    names = "by class cluster ids page order kind query vcpus ram specs image pod limit order_by project_id "
    names += "consumer_type after marker target q format"
    for page in (*pages, "why?kind=pod&cluster=edge"):
        for name in names.split():
            for text in dice.sample(ODD_TEXTS, 3):
                answer = admin.get(f"/ui/{page}{'&' if '?' in page else '?'}{name}={text}")
                assert answer.status_code in (200, 303, 400, 404), (page, name, text[:50], answer.text[-500:])
    for place in ("hosts/{}", "nodes/{}/x", "nodes/edge/{}", "consumers/{}", "pods/edge/{}/x", "map/host/{}"):
        for text in ODD_TEXTS:
            answer = admin.get(f"/ui/{place.format(text)}")
            seen = (place, text[:50], answer.text[-500:])
            assert answer.status_code in (200, 303, 308, 400, 404, 405), seen


def test_claims_refuse_what_no_page_sends(admin: FlaskClient):
    def refused() -> float:
        labels = {"kind": "consumer", "outcome": "bad_request"}
        return REGISTRY.get_sample_value("placement_claims_total", labels) or 0

    before = refused()
    provider, key = str(uuid.uuid4()), form_key(admin, "/ui/why")
    who = {"form_key": key, "consumer_uuid": str(uuid.uuid4()), "project_id": "p", "user_id": "u"}
    for changes, said in (
        ({"consumer_uuid": "x"}, "consumer_uuid"),
        ({"project_id": ""}, "project_id"),
        ({"consumer_type": "instance"}, "consumer_type"),
        ({"consumer_type": "ZÜGE"}, "consumer_type"),
        ({"allocations": "{"}, "allocations"),
        ({"allocations": '{"x": 1}'}, "allocations"),
        ({"allocations": orjson.dumps({provider: {"VCPU": -1}}).decode()}, "allocations"),
        ({"allocations": orjson.dumps({provider: {"VCPU": 1}}).decode()}, provider),
    ):
        data = {"allocations": "{}", "consumer_type": "INSTANCE", **who, **changes}
        answer = admin.post("/ui/claims", data=data)
        assert answer.status_code == 400, changes
        assert said in answer.text
    assert refused() == before + 1, "claims of pages are counted as those of the API are"
    unnamed = {"form_key": key, "cluster": "edge", "pod": "kind: Pod\napiVersion: v1"}
    assert "Pod.metadata.name" in admin.post("/ui/pod-claims", data=unnamed).text


def test_lists_are_given_as_json_and_as_csv(admin: FlaskClient, api: Client):
    provider = api.provider("=cmd()", VCPU={"total": 8, "reserved": 2})
    table = admin.get("/ui/hosts?by=use&class=VCPU&format=csv")
    assert table.mimetype == "text/csv"
    # A spreadsheet would take it for a formula.
    row = f"'=cmd(),{provider},neither,0,6,0,neither,open"
    assert table.text.splitlines() == ["name,uuid,group,part,whole,percent,group_name,state", row]
    listed = admin.get("/ui/hosts?by=use&class=VCPU&format=json").json
    (host,) = listed["hosts"]
    assert listed["count"] == 1
    assert host | {"name": "=cmd()", "part": 0, "whole": 6, "percent": 0} == host
    lists = ("", "map", "consumers", "pods", "changes", "refusals", "search?q=cmd")
    for path in (*lists, f"hosts/{provider}", "why?kind=query&query=resources%3DVCPU:1"):
        mark = "&" if "?" in path else "?"
        assert isinstance(admin.get(f"/ui/{path}{mark}format=json").json, dict), path
        as_csv = admin.get(f"/ui/{path}{mark}format=csv")
        assert (as_csv.status_code, as_csv.mimetype) == (200, "text/csv"), path
    assert api.delete(f"/resource_providers/{provider}").status_code == 204


def test_the_map_tells_each_host_once_in_few_bytes(admin: FlaskClient, api: Client):
    uuids = [api.provider(f"map-{number}", PCPU=4 * (number + 1)) for number in range(3)]
    assert api.claim({uuids[1]: {"PCPU": 2}}).status_code == 204
    body = admin.get("/ui/map/data?by=use&class=PCPU").data
    (size,) = struct.unpack_from("<I", body)
    head, columns = orjson.loads(body[4 : 4 + size]), body[4 + size :]
    assert (4 + size) % 8 == 0
    assert (head["count"], head["percent"]) == (3, 8)
    ids = struct.unpack_from("<3I", columns, head["offsets"]["ids"])
    assert list(columns[head["offsets"]["levels"] :][:3]) == [0, 25, 0]
    asked = admin.get(f"/ui/map/hosts?by=use&class=PCPU&ids={','.join(map(str, ids))},4000000").json
    assert [host["name"] for host in asked["hosts"]] == ["map-0", "map-1", "map-2"]
    assert asked["hosts"][1]["text"] == "2 of 8 CPU"
    assert admin.get(f"/ui/map/host/{ids[2]}").location == f"/ui/hosts/{uuids[2]}"


def test_links_and_lists_of_a_bound_token_are_about_its_clusters(visitor: FlaskClient, api: Client):
    for cluster in ("edge", "other"):
        manifests = node_manifests("full")
        assert api.put(f"/ext/v1/clusters/{cluster}/nodes/full", manifests).status_code == 201
        root = api.get(f"/ext/v1/clusters/{cluster}/nodes/full").json["tree"]["uuid"]
        assert api.claim({root: {"CUSTOM_PODS": 2}}).status_code == 204
        manifests["node"]["status"]["allocatable"]["pods"] = "1"
        assert api.put(f"/ext/v1/clusters/{cluster}/nodes/full", manifests).status_code == 200
    sign_in(visitor, BOUND)
    figures = visitor.get("/ui/?format=json").json["figures"]
    assert (figures["hosts"], figures["overfull"]) == (1, 1)
    (overfull,) = visitor.get("/ui/refusals?format=json").json["overfull"]
    assert overfull["name"] == "edge/full"
    overview = visitor.get("/ui/").text
    links = {unescape(link) for link in re.findall(r'href="(/ui/[^"]*)"', overview)}
    assert {"/ui/hosts?cluster=edge", "/ui/map?by=use&class=CUSTOM_NODE_MEMORY_MB&cluster=edge"} <= links
    for link in links:
        assert visitor.get(link).status_code == 200, link
    for page in ("map", "hosts", "consumers", "why", "room", "moves"):
        form = (
            visitor.get(f"/ui/{page}?cluster=edge")
            .text.partition('name="cluster"')[2]
            .partition("</select>")[0]
        )
        assert re.findall(r"<option[^>]*>([^<]*)<", form) == ["edge"], page
    assert "in edge" in visitor.get("/ui/figures").text


def test_a_host_with_a_comma_in_its_name_is_one_host(admin: FlaskClient, api: Client):
    host = api.provider("left, right", VCPU=1)
    (link,) = re.findall(r'href="(/ui/moves[?]goal=empty[^"]*)"', admin.get(f"/ui/hosts/{host}").text)
    assert admin.get(unescape(link)).status_code == 200


def test_a_search_says_of_parts_that_there_are_more(
    admin: FlaskClient, api: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search, "_MOST", 2)
    host = api.provider("machine")
    for number in range(3):
        api.provider(f"wanted-{number}", host)
    assert "1 or more" in admin.get("/ui/search?q=wanted").text


def test_a_claim_is_drawn_for_what_is_there_however_much_it_names(admin: FlaskClient, api: Client):
    host = api.provider("devices", SRIOV_NET_VF=4)
    core = api.provider("devices/core", host, PCPU=2)
    claim = {host: {"SRIOV_NET_VF": 10**6}, core: {"PCPU": 10**6}}
    tracemalloc.start()
    try:
        drawn = admin.get(f"/ui/hosts/{host}/drawing", query_string={"claim": orjson.dumps(claim)})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert drawn.text.count('data-owner="this claim"') >= 6
    assert most < 4 * 2**20, "no list has an entry for each of a million"


@pytest.fixture
def with_keystone() -> Iterator[tuple[IdentityService, Flask]]:
    """An identity service that knows Ann, and a service that asks it."""
    identity = IdentityService({"token-of-ann": project_token("admin", user="ann")})
    identity.passwords["ann", "secret", "platform"] = "token-of-ann"
    configured = compatible(auth_strategy="keystone")
    identity.configure(configured)
    with identity.running(), application_on("sqlite", settings=configured) as application:
        yield identity, application


def test_few_sign_ins_wait_for_keystone(
    with_keystone: tuple[IdentityService, Flask], monkeypatch: pytest.MonkeyPatch
):
    identity, application = with_keystone
    monkeypatch.setattr(passwords, "ANSWER_SECONDS", PATIENCE_SECONDS)

    def attempt(_: int) -> TestResponse:
        return sign_in(application.test_client(), "", user="ann", project="platform", password="secret")

    with ThreadPoolExecutor(10) as people:
        with identity.hanging():
            waiting = [people.submit(attempt, number) for number in range(10)]
            # Two are inside, and Keystone answers none of them before the block ends.
            eventually(8, lambda: sum(each.done() for each in waiting))
            refused = [each.result() for each in waiting if each.done()]
            assert len(identity.signed_in) == 2
        assert [answer.status_code for answer in refused] == [503] * 8
        assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
        statuses = sorted(each.result().status_code for each in waiting)
    assert statuses == [303] * 2 + [503] * 8


def test_guesses_of_passwords_are_bounded(with_keystone: tuple[IdentityService, Flask]):
    identity, application = with_keystone
    who = {"user": "ann", "project": "platform"}
    client = application.test_client()
    # Right ones do not count.
    for _ in range(25):
        assert sign_in(client, "", **who, password="secret").status_code == 303
        client.delete_cookie(SESSION_COOKIE, path="/ui/")
    for number in range(20):
        assert sign_in(client, "", **who, password=f"guess-{number}").status_code == 401
    asked = len(identity.signed_in)
    for _ in range(3):
        refused = sign_in(client, "", **who, password="secret")
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert "Too many wrong passwords came from this address" in refused.text
    assert len(identity.signed_in) == asked
    elsewhere = application.test_client()
    elsewhere.environ_base["REMOTE_ADDR"] = "192.0.2.7"
    assert sign_in(elsewhere, "", **who, password="secret").status_code == 303
    assert sign_in(client, "token-of-ann").status_code == 303


def test_people_sign_in_through_keystone_with_a_token_or_a_password(
    with_keystone: tuple[IdentityService, Flask],
):
    _, application = with_keystone
    who = {"user": "ann", "project": "platform"}
    unknown = "Keystone does not know this user with this password in this project."
    for wrong, right, told in (
        ({"token": "no-such-token"}, {"token": "token-of-ann"}, ""),
        ({"token": "", **who, "password": "wrong"}, {"token": "", **who, "password": "secret"}, unknown),
    ):
        client = application.test_client()
        refused = sign_in(client, **wrong)
        assert (refused.status_code, told in refused.text) == (401, True)
        assert sign_in(client, **right).status_code == 303
        assert client.get("/ui/").status_code == 200
