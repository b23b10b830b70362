"""Whatever fails, the extender answers 200: kube-scheduler shows tenants the URL, token included, otherwise.

What the log, the figures and the limits count is what happened.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement.common.extender_protocol import verb_at
from placement.metrics.catalog import REQUESTS
from placement.pods.services.extender import Extender
from placement.storage.database import Database
from tests import lane_server
from tests.certificates import Authority
from tests.client import Client
from tests.conftest import application_of, compatible
from tests.hostile import Answer, Wire
from tests.kubernetes import CLUSTER, add_nodes, pod_manifest
from tests.patience import eventually
from tests.server import database_url, running_service

pytestmark = pytest.mark.one_database

SERVICE, READER, ELSEWHERE, EXTENDER, WRONG = (
    f"{name}-{'t' * 32}" for name in ("service", "reader", "elsewhere", "extender", "wrong")
)
TOKENS = {
    SERVICE: {"user": "service", "roles": ["service"]},
    READER: {"user": "reader", "roles": ["reader"]},
    ELSEWHERE: {"user": "elsewhere", "roles": ["service"], "clusters": ["elsewhere"]},
    EXTENDER: {"user": "kube-scheduler", "roles": ["extender"], "clusters": ["edge"]},
}
VERBS = ("filter", "prioritize", "preempt", "bind")
NAMES = ["big", "small"]
JSON = {"Content_Type": "application/json"}


def args(verb: str, cpu: str = "2") -> dict[str, Any]:
    if verb == "bind":
        return {"PodName": "web-0", "PodNamespace": "default", "PodUID": "uid-web-0", "Node": "big"}
    pod = pod_manifest(cpu, uid="uid-web-0")
    pod["metadata"].update(name="web-0", namespace="default")
    victims = {"NodeNameToMetaVictims": {name: {"Pods": [], "NumPDBViolations": 0} for name in NAMES}}
    return {"Pod": pod, **(victims if verb == "preempt" else {"NodeNames": NAMES})}


def failed(verb: str, nodes: list[str], answer: Any) -> str:
    """The message of an answer in the form that the verb has for failures; empty where it has none."""
    if verb == "prioritize":
        assert answer == [{"Host": name, "Score": 0} for name in nodes]
        return ""
    if verb == "preempt":
        assert answer == {"NodeNameToMetaVictims": {}}
        return ""
    message: str = answer.pop("Error")
    assert message
    members = (
        {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes"} if verb == "filter" else set()
    )
    assert answer == dict.fromkeys(members)
    return message


def encoded(token: str) -> str:
    """How kube-scheduler sends the password of a URL without a user."""
    return base64.b64encode(f":{token}".encode()).decode()


SECRETS = [*TOKENS, WRONG, *map(encoded, [*TOKENS, WRONG])]


def shows_nothing(text: str) -> bool:
    """Whether there is neither a token in it nor an address."""
    return not any(secret in text for secret in [*SECRETS, "://"])


def settings(folder: Path, **options: Any) -> Any:
    tokens = folder / "tokens.yaml"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    return compatible(auth_strategy="token", tokens_file=str(tokens), **options)


@contextmanager
def service(database: Database, folder: Path, **options: Any) -> Iterator[Flask]:
    """The service with these tokens, and with two machines in a cluster."""
    with application_of(database, settings(folder, **options)) as application:
        yield application


@pytest.fixture
def application(database: Database, tmp_path: Path) -> Iterator[Flask]:
    with service(database, tmp_path) as application:
        api = Client(application.test_client(), token=SERVICE)
        for cluster in ("edge", "elsewhere"):
            assert api.put(f"/ext/v1/clusters/{cluster}", {}).status_code == 201
        add_nodes(api, *NAMES)
        yield application


class Heard:
    """What is logged, and how often each status of a route was counted."""

    def __init__(self, caplog: pytest.LogCaptureFixture, rule: str, method: str = "POST") -> None:
        self._caplog, self._labels = caplog, (rule, method)
        caplog.clear()

    def lines(self, logger: str) -> list[str]:
        return [each.getMessage() for each in self._caplog.records if each.name == logger]

    def counted(self, status: int) -> float:
        found: float = REQUESTS.labels(*self._labels, str(status))._value.get()
        return found


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., Heard]]:
    with caplog.at_level(logging.INFO, "placement"):
        yield lambda *given: Heard(caplog, *given)


# What needs no token.
_OPEN = {f"GET {path}" for path in ("/", "", "/openapi.json", "/docs", "/docs/<asset>", "/livez", "/readyz")}
_OPEN |= {"GET /healthcheck", "GET /metrics"}
_OPEN |= {f"GET /ui{path}" for path in ("", "/static/<name>", "/<path:rest>", "/sign-in")}
RULE = "/ext/v1/clusters/<cluster>/extender"


def ask(
    application: Flask, verb: str, body: Any = None, *, token: str = SERVICE, path: str = "", **headers: str
) -> TestResponse:
    """A request as kube-scheduler sends it: the token is a password."""
    sent = {"Authorization": f"Basic {encoded(token)}", **headers}
    client = Client(application.test_client(), None, None)
    return client.post(path or f"{CLUSTER}/extender/{verb}", args(verb) if body is None else body, **sent)


def unreachable(_: Any, *__: Any) -> None:
    raise RuntimeError(f"a mistake, with the token {SERVICE} in its words")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("status", "asked", "says"),
    [
        (401, {"token": WRONG}, "A known token is required"),
        (403, {"token": READER}, "Policy does not allow"),
        (403, {"token": ELSEWHERE}, "bound to other clusters"),
        (400, {"body": b"{", **JSON}, "Malformed JSON"),
        (400, {"body": {}}, ": "),
        (400, {"body": [5]}, "must be an object"),
        (415, {"body": b"Pod: {}", "Content_Type": "application/yaml"}, "media type"),
        (406, {"Accept": "text/html"}, "application/json"),
    ],
    ids=str,
)
def test_what_is_refused_is_answered_200_and_counted_as_it_is(
    application: Flask, heard: Callable[..., Heard], verb: str, status: int, asked: dict[str, Any], says: str
):
    rule = f"{RULE}/{verb}"
    found = heard(rule)
    before = found.counted(status), found.counted(200)
    answer = ask(application, verb, **asked)
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    # Strangers' bodies are not read.
    nodes = NAMES if "body" not in asked and status != 401 else []
    message = failed(verb, nodes, answer.json)
    assert says in (message or str(found.lines("placement.pods.extender_routes")))
    assert shows_nothing(answer.text), answer.text
    assert shows_nothing(str(answer.headers))
    assert (found.counted(status) - before[0], found.counted(200) - before[1]) == (1, 0)
    (line,) = found.lines("placement.requests")
    assert f" status: {status} " in line
    # Only what got past the guard of a verb that only reads is known to be no change.
    assert all(each.endswith(f"status: {status}") for each in found.lines("placement.audit"))
    assert shows_nothing(str(found.lines("placement.requests")) + str(found.lines("placement.audit")))


@pytest.mark.parametrize("verb", VERBS)
def test_a_mistake_of_the_service_is_answered_200(
    application: Flask, heard: Callable[..., Heard], monkeypatch: pytest.MonkeyPatch, verb: str
):
    monkeypatch.setattr(Extender, verb, unreachable)
    found = heard(f"{RULE}/{verb}")
    before = found.counted(500)
    answer = ask(application, verb)
    assert answer.status_code == 200
    assert "failure was logged" in (failed(verb, NAMES, answer.json) or "failure was logged")
    assert shows_nothing(answer.text)
    assert found.counted(500) == before + 1
    assert " status: 500 " in found.lines("placement.requests")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_wrong_with_the_cluster_or_the_pod_is_counted_as_it_is(
    application: Flask, heard: Callable[..., Heard], verb: str
):
    found = heard(f"{RULE}/{verb}")
    answer = ask(application, verb, path=f"/ext/v1/clusters/none/extender/{verb}")
    message = failed(verb, NAMES, answer.json)
    assert answer.status_code == 200
    assert message in ("", "No cluster none found") or verb == "bind"
    assert f" status: {503 if verb == 'bind' else 404} " in found.lines("placement.requests")[0]
    if verb != "bind":
        odd = ask(application, verb, args(verb, "many"))
        assert "requests" in (failed(verb, NAMES, odd.json) or "requests")
        assert " status: 400 " in found.lines("placement.requests")[1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", f"{CLUSTER}/extender/filters", 404),
        ("POST", f"{CLUSTER}/extender/", 404),
        ("POST", f"{CLUSTER}/extender/filter/", 404),
        # A proxy sends callers of http to https, and Go follows with GET.
        ("GET", f"{CLUSTER}/extender/filter", 405),
        ("POST", f"{CLUSTER}/extender/bind?a=b", 400),
    ],
)
def test_misspelt_addresses_are_answered_200(
    application: Flask, heard: Callable[..., Heard], method: str, path: str, status: int
):
    found = heard(RULE)
    answer = Client(application.test_client(), token=SERVICE).call(method, path, args("filter"))
    assert answer.status_code == 200
    assert answer.json["Error"]
    assert f" status: {status} " in found.lines("placement.requests")[0]


def test_other_paths_keep_their_statuses(application: Flask):
    """Also where a pod is called like a verb, in a namespace with the name extender."""
    api = Client(application.test_client(), token=SERVICE)
    assert api.get(f"{CLUSTER}/pods/extender/filter").status_code == 404
    assert api.get("/ext/v1/clusters/extender").status_code == 404
    assert api.post("/ext/v1/extender/filter", {}).status_code == 404
    assert [verb_at(f"{start}{CLUSTER}/extender/bind") for start in ("", "/", "/prefix")] == ["bind"] * 3


def test_a_database_that_is_away_is_answered_200(tmp_path: Path, heard: Callable[..., Heard]):
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    with service(database, tmp_path) as application:
        for verb in VERBS[:-1]:
            found = heard(f"{RULE}/{verb}")
            answer = ask(application, verb)
            assert answer.status_code == 200
            assert "database" in (failed(verb, NAMES, answer.json) or "database")
            assert " status: 503 " in found.lines("placement.requests")[0]
    database.dispose()


@pytest.mark.parametrize("verb", VERBS)
def test_requests_beyond_the_limit_of_a_caller_are_answered_200_and_wrong_tokens_count(
    database: Database, tmp_path: Path, heard: Callable[..., Heard], verb: str
):
    with service(database, tmp_path, max_requests_per_caller=1) as application, ExitStack() as held:
        found = heard(f"{RULE}/{verb}")
        first = ask(application, verb, path=f"/ext/v1/clusters/none/extender/{verb}")
        held.callback(first.close)
        # The first answer is not closed, so its request still counts.
        second = ask(application, verb)
        assert second.status_code == 200
        assert "Too many" in (failed(verb, NAMES, second.json) or "Too many")
        assert " status: 429 " in found.lines("placement.requests")[1]


# -- what is refused before the application has it ---------------------------------------------------------


def head(verb: str, *lines: str, token: str = WRONG) -> str:
    start = f"POST {CLUSTER}/extender/{verb} HTTP/1.1", "Host: x", f"Authorization: Basic {encoded(token)}"
    return "\r\n".join([*start, "Content-Type: application/json", *lines, "", ""])


def refused(answer: Answer, verb: str) -> str:
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    text = answer.body.decode()
    assert shows_nothing(text), text
    assert "x-openstack-request-id" in answer.headers
    return failed(verb, [], answer.json)


@pytest.fixture(scope="module")
def lanes() -> Iterator[lane_server.Running]:
    limits = {"head_seconds": 1, "body_seconds": 1, "largest_body_bytes": 100, "largest_head_bytes": 4096}
    with lane_server.running(**limits, requests_per_caller=2) as running:
        yield running


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (lambda verb: head(verb, "Content-Length: 101"), "body is too long"),
        (lambda verb: head(verb, f"X-Long: {'x' * 5000}"), "headers are too long"),
        (lambda verb: head(verb)[:-2], "head of the request did not arrive"),
        (lambda verb: head(verb, "Content-Length: 9"), "body of the request did not arrive"),
        (lambda verb: head(verb, "Transfer-Encoding: gzip"), "TRANSFER-ENCODING"),
        (lambda verb: head(verb, "Transfer-Encoding: chunked") + "zz\r\n", "chunk"),
        (lambda verb: head(verb, f"{encoded(SERVICE)}"), "Invalid HTTP Header"),
        (lambda verb: head(verb, "Expect: the-unexpected"), "expectation"),
    ],
    ids=["413", "431", "408 head", "408 body", "501", "400 chunk", "400 header", "417"],
)
def test_what_the_server_refuses_itself_is_answered_200(
    lanes: lane_server.Running, verb: str, sent: Callable[[str], str], says: str
):
    with Wire(lanes.url) as wire:
        message = refused(wire.send(sent(verb)).answer(), verb)
    assert says in (message or says), message


def test_a_line_that_cannot_be_read_has_no_verb(lanes: lane_server.Running):
    with Wire(lanes.url) as wire:
        answer = wire.send(f"POST  {CLUSTER}/extender/filter HTTP/1.1\r\nHost: x\r\n\r\n").answer()
        assert answer.error["status"] == 400


@pytest.mark.parametrize("verb", VERBS)
def test_too_many_requests_of_a_caller_are_answered_200(lanes: lane_server.Running, verb: str):
    busy = [Wire(lanes.url) for _ in range(2)]
    for number, wire in enumerate(busy):
        name = f"{verb}-{number}"
        wire.send(f"GET /x?held={verb}&name={name} HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(True, lambda name=name: lanes.has_noted("begun", name))
    with Wire(lanes.url) as wire:
        message = refused(wire.send(head(verb, "Content-Length: 2"), "{}").answer(), verb)
    assert "Too many requests of this caller" in (message or "Too many requests of this caller")
    lanes.free(verb)
    for wire in busy:
        assert wire.answer().status == 200
        wire.close()


def test_what_the_server_refuses_is_counted_and_logged_as_it_is(tmp_path: Path):
    settings(tmp_path)
    environment = {
        "OS_API__AUTH_STRATEGY": "token",
        "OS_API__TOKENS_FILE": str(tmp_path / "tokens.yaml"),
        "OS_API__MAX_REQUEST_BODY_BYTES": "1024",
    }
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, environment=environment) as server,
    ):
        with Wire(server.url) as wire:
            refused(wire.send(head("filter", "Content-Length: 1025")).answer(), "filter")
        with Wire(server.url) as wire:
            refused(wire.send(head("filter", "Content-Length: 2"), "{}").answer(), "filter")
        with Wire(server.url) as wire:
            refused(wire.send(head("filter", encoded(SERVICE))).answer(), "filter")
        with Wire(server.url) as wire:
            figures = wire.get("/metrics", "Connection: close\r\n").answer().body.decode()
        assert 'placement_http_refused_total{status="413"} 1.0' in figures
        (counted,) = [line for line in figures.splitlines() if "requests_total" in line and "filter" in line]
        assert 'status="401"' in counted
        log = server.log.read_text()
        assert " 413 The body is too long." in log
        assert "status: 401" in log
        assert not any(secret in log for secret in SECRETS)


def test_clients_without_a_certificate_are_answered_200(tmp_path: Path):
    authority = Authority(tmp_path)
    arguments = [*authority.sign("server").arguments, "--tls-client-ca", str(authority.file)]
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, arguments=arguments) as server,
    ):
        context = ssl.create_default_context(cafile=str(authority.file))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        for verb in VERBS:
            with opener.open(f"{server.url}{CLUSTER}/extender/{verb}", b"{}", timeout=60) as answer:
                assert answer.status == 200
                assert "certificate" in (failed(verb, [], json.loads(answer.read())) or "certificate")


# -- a token that is of use for nothing else ---------------------------------------------------------------


def test_a_token_with_the_role_extender_asks_the_extender_and_nothing_else(
    application: Flask, heard: Callable[..., Heard]
):
    api = Client(application.test_client(), token=EXTENDER)
    asked = set()
    for rule in application.url_map.iter_rules():
        path = rule.rule.replace("<cluster>", "edge").replace("<resource_class>", "VCPU")
        path = re.sub("<(uuid|consumer)>", "0a000000-0000-4000-8000-000000000001", path)
        path = re.sub("<(node|namespace|name|text)>", "big", path).replace("<asset>", "start.js")
        for method in (rule.methods or set()) - {"HEAD"}:
            found = heard(RULE)
            sent = {"data": {"a": "b"}} if path.startswith("/ui") else {"json": {}}
            body = {} if method in ("GET", "DELETE") else sent
            headers = {"X-Auth-Token": EXTENDER, "OpenStack-API-Version": "placement 1.39"}
            api.http.open(path, method=method, headers=headers, **body)
            (line,) = found.lines("placement.requests")
            if " status: 403 " not in line:
                asked.add(f"{method} {rule.rule}")
    assert asked - _OPEN == {f"POST {RULE}/{verb}" for verb in VERBS}
    # They are those of the document.
    paths = api.get("/openapi.json").json["paths"]
    documented = {path for path in paths if path.startswith(RULE.replace("<cluster>", "{cluster}"))}
    assert len(documented) == len(VERBS)
