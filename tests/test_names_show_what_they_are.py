"""Names that callers give command no terminal, forge no line and are no formulas, wherever they are shown."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import urllib.request
import uuid
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pytest

from placement.client import cli
from placement.client.formats import Shell
from tests.client import Client
from tests.conftest import application_on
from tests.kubernetes import node_manifests, pod_manifest
from tests.server import hosted

ODD = "\x1b[31mRED\x1b]0;owned\x07\x1b[2J\r\nFAKE LINE\u202eevil\u200b"
FORMULA = '=HYPERLINK("http://evil")'
CHARACTERS = {*"\x1b\x07\r\u202e\u200b\x9b\u2028"}
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


def detail(answer: Any) -> str:
    assert answer.status_code == 400, answer.text
    return str(answer.json["errors"][0]["detail"])


# What our own routes take as names.

# Persian, Hindi and emoji are not written without joiners.
NAMES = ["Zürich 7", "پیوند\u200cها", "क्\u200dष", "\N{MAN}\u200d\N{PERSONAL COMPUTER}"]


@pytest.fixture
def hosts(api: Client) -> str:
    return api.provider("host", VCPU=64)


@pytest.mark.one_database
@pytest.mark.parametrize(
    "character", ["\x1b", "\n", "\x85", "\u2028", "\u202e", "\u2066", "\u200f", "\u061c"]
)
def test_names_on_our_own_routes_have_no_controls_and_no_marks_of_direction(
    api: Client, hosts: str, character: str
):
    name, found = f"a{character}b", f"has U+{ord(character):04X}, which no name may have"
    member = {"name": "m", "query": "resources=VCPU:1"}
    claim = {**OWNER, "consumer_uuid": str(uuid.uuid4()), "query": "resources=VCPU:1"}
    for field in ("project_id", "user_id"):
        text = detail(api.post("/ext/v1/claims", {**claim, field: name}))
        assert found in text
        assert text.startswith(f"{field}: ")
        assert found in detail(api.post("/ext/v1/claims", {**OWNER, field: name, "members": [member]}))
        assert found in detail(api.post("/ext/v1/claims", {**OWNER, "members": [{**member, field: name}]}))
    for field in ("name", "group"):
        assert found in detail(api.post("/ext/v1/claims", {**OWNER, "members": [{**member, field: name}]}))
    servers = {"name": "g", "id": name, "policy": "anti-affinity"}
    group = {**OWNER, "members": [member], "server_group": servers}
    assert "server_group.id: has" in detail(api.post("/ext/v1/claims", group))
    aggregate = str(uuid.uuid4())
    api.join(hosts, aggregate)
    assert found in detail(api.put(f"/ext/v1/aggregates/{aggregate}", {"name": name}))
    assert api.get("/ext/v1/allocations").json["consumers"] == []


@pytest.mark.one_database
@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_language_are_taken(api: Client, hosts: str, name: str):
    member = {"name": name, "group": name, "count": 1, "query": "resources=VCPU:1"}
    body = {**OWNER, "project_id": name, "user_id": name, "members": [member]}
    claimed = api.post("/ext/v1/claims", body)
    assert [each["status"] for each in claimed.json["members"]] == [201], claimed.text
    aggregate = str(uuid.uuid4())
    api.join(hosts, aggregate)
    assert api.put(f"/ext/v1/aggregates/{aggregate}", {"name": name}).status_code < 300


@pytest.mark.one_database
def test_routes_of_the_incumbent_take_what_it_takes(api: Client):
    made = api.post("/resource_providers", {"name": ODD})
    assert (made.status_code, made.json["name"]) == (200, ODD)
    api.offer(made.json["uuid"], VCPU=8)
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {made.json["uuid"]: {"resources": {"VCPU": 1}}},
        **{**OWNER, "project_id": ODD, "user_id": ODD},
        "consumer_generation": None,
    }
    assert api.put(f"/allocations/{consumer}", body).status_code == 204
    assert api.get(f"/allocations/{consumer}").json["project_id"] == ODD


@pytest.mark.one_database
def test_manifests_of_kubernetes_are_taken_whatever_their_labels_and_annotations_say(api: Client):
    cluster = "/ext/v1/clusters/edge"
    assert api.put(cluster).status_code == 201
    assert api.put(f"{cluster}/nodes/n1", node_manifests("n1", annotations={"a/b": ODD})).status_code == 201
    pod = pod_manifest("2")
    pod["metadata"]["annotations"]["note"] = ODD
    pod["spec"]["schedulerName"] = "name.with-dots.and-1"
    assert api.put(f"{cluster}/pods/default/web-5d4f8c7b9-x2x4z", pod).status_code == 201
    assert api.put(f"{cluster}/nodes/n%1b", node_manifests("n\x1b")).status_code == 400
    assert "description: has U+001B" in detail(api.put(cluster, {"description": ODD}))
    assert api.put(cluster, {"description": "two\nlines"}).status_code == 200


# What the commands print.


@pytest.fixture(scope="module")
def odd_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with application_on("sqlite") as application:
        api = Client(application.test_client())
        for name in (ODD, FORMULA, f"\t{FORMULA}"):
            host = api.post("/resource_providers", {"name": name}).json["uuid"]
            api.offer(host, VCPU=8)
            for child in range(6):
                core = {"name": f"{name}core-{child}", "parent_provider_uuid": host}
                api.offer(api.post("/resource_providers", core).json["uuid"], PCPU=2)
            owner = {"project_id": name, "user_id": name, "consumer_type": "INSTANCE"}
            body = {"allocations": {host: {"resources": {"VCPU": 1}}}, **owner, "consumer_generation": None}
            assert api.put(f"/allocations/{uuid.uuid4()}", body).status_code == 204
        with hosted(application) as url:
            yield url


COMMANDS = (
    "host list --wide", "allocation list --wide", "candidates resources=VCPU:1", "explain resources=VCPU:100",
    "capacity resources=VCPU:1", "audit --long", "tree {name}", "host show {name}", "no-such {name}",
)  # fmt: skip


@pytest.mark.parametrize("form", ["", "-o csv", "-o value", "-o table"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_names_as_one_line_of_visible_characters(
    odd_service: str, command: str, form: str, capfd: pytest.CaptureFixture[str]
):
    words = [ODD if word == "{name}" else word for word in f"{command} {form}".split()]
    cli.main(["--url", odd_service, *words])
    printed = capfd.readouterr()
    for text in (printed.out, printed.err):
        assert not CHARACTERS & set(text.replace("\r\n", "\n") if form == "-o csv" else text)
        assert not [line for line in text.splitlines() if line.startswith("FAKE")]
    if form == "-o csv":
        cells = [cell for row in csv.reader(io.StringIO(printed.out)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]


def test_machine_formats_have_the_names_as_they_are(odd_service: str, capfd: pytest.CaptureFixture[str]):
    cli.main(["--url", odd_service, "host", "list", "-o", "json"])
    assert ODD in [host["name"] for host in json.loads(capfd.readouterr().out)]


def test_variables_of_a_shell_run_nothing(odd_service: str, capfd: pytest.CaptureFixture[str], tmp_path: Any):
    out, name = io.StringIO(), '$(touch ran)`touch ran`"; touch ran; \\'
    Shell().emit_one(["name", "odd"], [name, ODD], out, Namespace(variables=[], prefix=""))
    script = f'{out.getvalue()}printf "%s" "$name"'
    shown = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (shown.stdout, list(tmp_path.iterdir())) == (name, [])
    assert out.getvalue().count("\n") == 2


# What pages write as CSV.


def test_pages_write_csv_that_is_calculated_nowhere(odd_service: str):
    page = f"{odd_service}/ui/consumers?format=csv"
    request = urllib.request.Request(page, headers={"X-Auth-Token": "admin"})
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    assert not CHARACTERS & set(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 4
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "\t", "\r"))]
