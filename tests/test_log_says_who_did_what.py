"""Every line in the log names request, user and project; every attempt to change something has a line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from oslo_config import cfg
from oslo_log import formatters, log

from tests.client import Client, custom, unique

SENT = "req-00000000-1111-2222-3333-444444444444"
NOVA = "nova:service"


class Written:
    """What the service writes to its log, formatted as it is in operation."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(formatter)

    def lines(self, logger: str) -> list[str]:
        """The lines of that logger."""
        return [line for line in self._stream.getvalue().splitlines() if logger in line]


def written_with(formatter: logging.Formatter) -> Iterator[Written]:
    written = Written(formatter)
    logger = logging.getLogger("placement")
    level = logger.level
    logger.addHandler(written.handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.removeHandler(written.handler)
    logger.setLevel(level)


def configuration() -> cfg.ConfigOpts:
    settings = cfg.ConfigOpts()
    log.register_options(settings)
    settings([], project="placement", default_config_files=[], default_config_dirs=[])
    return settings


@pytest.fixture
def written() -> Iterator[Written]:
    yield from written_with(formatters.ContextFormatter(config=configuration()))


@pytest.fixture
def fields() -> Iterator[Written]:
    yield from written_with(formatters.JSONFormatter())


@pytest.fixture
def nova(embedded: Client) -> Client:
    return embedded.as_(NOVA, X_Roles="service")


def test_one_line_per_request_names_request_user_and_project(nova: Client, written: Written):
    answer = nova.get("/traits?name=in:A%0AB", X_Openstack_Request_Id=SENT)
    (line,) = written.lines("placement.requests")
    own = answer.headers["x-openstack-request-id"]
    assert f"[{SENT} {own} nova service - - - -] 127.0.0.1" in line
    length = answer.headers["Content-Length"]
    said, _, seconds = line.partition(" duration: ")
    assert said.endswith(f'"GET /traits?name=in:A%0AB" status: 200 len: {length} microversion: 1.39')
    assert float(seconds) >= 0


def test_nobody_inherits_the_name_of_who_called_before(nova: Client, written: Written):
    nova.get("/traits")
    answer = nova.as_(None).get("/traits")
    before, line = written.lines("placement.requests")
    assert "nova" in before
    assert f"[None {answer.headers['x-openstack-request-id']} - - - - - -]" in line


def test_what_an_open_page_asks_for_by_itself_is_no_line(embedded: Client, written: Written):
    polled = {"X_Requested_With": "placement"}
    assert embedded.get("/ui/static/pages.js").status_code == 200
    assert embedded.get("/ui/changes", **polled).status_code == 200
    assert written.lines("placement.requests") == []
    embedded.get("/ui/changes")
    embedded.get("/traits", **polled)
    embedded.get("/ui/static/none.js")
    embedded.post("/ui/changes", **polled)
    shown = [line.split('"')[1] for line in written.lines("placement.requests")]
    assert shown == ["GET /ui/changes", "GET /traits", "GET /ui/static/none.js", "POST /ui/changes"]


def test_lines_as_json_have_it_in_fields(nova: Client, fields: Written):
    answer = nova.get("/traits")
    (record,) = [json.loads(line) for line in fields.lines("placement.requests")]
    assert record["context"]["user"] == "nova"
    assert record["context"]["project"] == "service"
    assert record["context"]["request_id"] == answer.headers["x-openstack-request-id"]
    assert record["context"]["roles"] == ["service"]
    assert "auth_token" not in record["context"] or record["context"]["auth_token"] is None
    told = record["extra"]
    assert (told["address"], told["method"], told["uri"]) == ("127.0.0.1", "GET", "/traits")
    assert (told["status"], told["len"], told["microversion"]) == (
        "200",
        answer.headers["Content-Length"],
        "1.39",
    )
    assert float(told["duration"]) >= 0


@pytest.mark.parametrize("path", ["/allocation_candidates", "/ext/v1/allocation_candidates"])
def test_searches_say_how_many_candidates_they_found(nova: Client, written: Written, path: str):
    for name in ("one", "two"):
        nova.provider(unique(name), PCPU=2)
    count = len(nova.get(f"{path}?resources=PCPU:1").json["allocation_requests"])
    assert count
    line = written.lines(f"GET {path}")[-1]
    assert line.endswith(f" candidates: {count}")
    nova.get("/traits")
    assert "candidates: " not in written.lines("GET /traits")[-1]


def test_every_attempt_to_change_something_has_a_line(nova: Client, written: Written):
    attempts: list[tuple[Client, str, str, object, int]] = [
        (nova, "PUT", f"/traits/{custom()}", None, 201),
        (nova, "DELETE", "/resource_providers/00000000-0000-0000-0000-000000000000", None, 404),
        (nova, "POST", "/resource_providers", {"nonsense": 1}, 400),
        (nova, "POST", "/nonsense", {}, 404),
        (nova, "PUT", "/ext/v1/clusters/Bad Name", {}, 400),
        # It may release.
        (nova, "POST", "/ext/v1/clusters/none/extender/filter", {}, 400),
        (nova.as_("eve", X_Roles="reader"), "POST", "/resource_providers", {"name": "x"}, 403),
        (nova.as_(None), "POST", "/resource_providers", {"name": "x"}, 401),
    ]
    for number, (caller, method, path, body, status) in enumerate(attempts):
        answer = caller.call(method, path, body)
        user, _, project = (caller.token or "-").partition(":")
        line = written.lines("placement.audit")[number]
        assert answer.headers["x-openstack-request-id"] in line
        said = f'user: {user} project: {project or user} address: 127.0.0.1 "{method} {quote(path)}"'
        assert line.endswith(f"{said} status: {status}"), line


def test_reading_is_not_audited(nova: Client, written: Written):
    nova.get("/traits")
    nova.post("/ext/v1/flavors/translation", {"flavor": {"vcpus": 1, "ram": 64, "disk": 1}})
    nova.post("/ext/v1/clusters/none/pods/preview", {"pod": {}})
    assert len(written.lines("placement.requests")) == 3
    assert written.lines("placement.audit") == []


def test_names_of_callers_stay_one_word_of_one_line(embedded: Client, written: Written):
    caller = embedded.as_('eve "x": admin', X_Roles="admin", X_Project_Id="a b\x1b[2J")
    caller.put("/traits/CUSTOM_AUDITED")
    (audit,) = written.lines("placement.audit")
    assert "user: eve%20%22x%22 project: a%20b%1B%5B2J address:" in audit
    (request,) = written.lines("placement.requests")
    assert " eve%20%22x%22 a%20b%1B%5B2J " in request
