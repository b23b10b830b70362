"""Projects, users and consumers get names, which lists, pages and commands show beside their ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from placement.engine.domain.errors import Conflict
from placement.engine.domain.given_names import GivenNameKind, NameKey
from placement.names.service import GivenNames
from placement.storage.database import Database
from tests.client import Client, detail
from tests.commands import run
from tests.kubernetes import cluster_of
from tests.server import hosted

NAMES = "/ext/v1/names"
SERVER = "1a2b3c4d-0000-4000-8000-000000000001"
PROJECT, USER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


def entries(**names: str | None) -> list[dict[str, str | None]]:
    uuids = {"project": PROJECT, "user": USER, "consumer": SERVER}
    return [{"kind": kind, "uuid": uuids[kind], "name": name} for kind, name in names.items()]


def put(api: Client, **names: str | None) -> dict[str, int]:
    answer = api.put(NAMES, {"names": entries(**names)})
    assert answer.status_code == 200, answer.text
    return answer.json


def listed(api: Client, query: str = "") -> list[tuple[str, str, str]]:
    found = api.get(f"{NAMES}?{query}").json["names"]
    return [(each["kind"], each["uuid"], each["name"]) for each in found]


def test_names_are_written_changed_and_deleted_many_at_once(api: Client):
    assert put(api, project="web", user="ann", consumer="web-1") == {
        "written": 3, "deleted": 0, "unchanged": 0,
    }  # fmt: skip
    assert put(api, project="web", user="anne", consumer=None) == {"written": 1, "deleted": 1, "unchanged": 1}
    assert put(api, consumer=None) == {"written": 0, "deleted": 0, "unchanged": 1}
    assert listed(api) == [("project", PROJECT, "web"), ("user", USER, "anne")]
    one = api.get(f"{NAMES}?kind=user").json["names"][0]
    assert one["written_by"] == "admin"
    assert one["written_at"].endswith("Z")


def test_lists_of_names_are_filtered_and_come_in_pages(api: Client):
    put(api, project="web", user="ann", consumer="web")
    whole = listed(api)
    assert listed(api, "name=web") == [("consumer", SERVER, "web"), ("project", PROJECT, "web")]
    bare = SERVER.replace("-", "").upper()
    assert listed(api, f"kind=consumer&uuid={bare}") == [("consumer", SERVER, "web")]
    assert listed(api, f"uuid={PROJECT}&kind=user") == []
    first = api.get(f"{NAMES}?limit=1").json
    assert listed(api, f"limit=2&after={first['next']}") == whole[1:]
    assert "'host' is not one of project, user, consumer" in detail(api.get(f"{NAMES}?kind=host"))
    assert "No cluster x found" in detail(api.get(f"{NAMES}?cluster=x"))


def test_a_record_has_what_the_names_were_and_are(api: Client):
    put(api, project="web", user="ann")
    put(api, project="shop", user=None)
    put(api, project="shop")
    events = api.get("/ext/v1/audit?target_type=names").json["events"]
    assert [[each["content"] for each in event["attachments"]] for event in events] == [
        [{f"project/{PROJECT}": "web", f"user/{USER}": "ann"}, {f"project/{PROJECT}": "shop"}],
        [{}, {f"project/{PROJECT}": "web", f"user/{USER}": "ann"}],
    ]


def test_what_cannot_be_named_is_refused_and_nothing_written(api: Client):
    good, bad = entries(project="web")[0], {"kind": "consumer", "uuid": "web-1", "name": "x"}
    for names, reason in (
        ([good, good], f"names[1].uuid: comes twice: project {PROJECT}"),
        ([good, bad], "names[1].uuid: is not a UUID, as every consumer has: 'web-1'"),
        ([good, {**good, "kind": "host"}], "names[1].kind"),
        ([good, {**good, "name": "x" * 256}], "names[1].name"),
        ([good, {**good, "name": "a\u202eb"}], "names[1].name"),
        ([good, {**good, "uuid": ""}], "names[1].uuid"),
        ([{**good, "uuid": str(number)} for number in range(1001)], "at most 1000 elements, not 1001"),
    ):
        answer = api.put(NAMES, {"names": names})
        assert (answer.status_code, reason in detail(answer)) == (400, True), detail(answer)
    assert listed(api) == []


def test_a_service_keeps_a_bounded_number_of_names(database: Database):
    names = GivenNames(database, most=3)

    def write(*uuids: str) -> None:
        names.write({NameKey(GivenNameKind.PROJECT, uuid): "x" for uuid in uuids})

    write("a", "b", "c")
    with pytest.raises(Conflict, match="A service keeps 3 names"):
        write("d")
    write("a", "b")
    assert [each.uuid for each in names.listed({}, None, 0, 9)[0]] == ["a", "b", "c"]


@pytest.fixture
def named(api: Client) -> str:
    """A server on a host, with names for it, its project and its user; the uuid of the host."""
    host = api.provider("host", VCPU=8)
    for consumer in (SERVER, SERVER[:-1] + "2"):
        assert api.claim({host: {"VCPU": 1}}, consumer, project_id=PROJECT, user_id=USER).status_code == 204
    put(api, project="web shop", user="ann", consumer="cart <1>")
    return host


@pytest.mark.usefixtures("named")
def test_answers_have_names_beside_ids_where_there_are_some(api: Client):
    first, second = api.get("/ext/v1/allocations").json["consumers"]
    assert [first[f"{kind}_name"] for kind in ("consumer", "project", "user")] == [
        "cart <1>", "web shop", "ann",
    ]  # fmt: skip
    assert (first["consumer_uuid"], first["project_id"], first["user_id"]) == (SERVER, PROJECT, USER)
    assert "consumer_name" not in second
    assert "name" not in str(api.get(f"/allocations/{SERVER}").json)
    (event,) = api.get(f"/ext/v1/audit?consumer_uuid={SERVER}").json["events"]
    assert (event["target"]["id"], event["target"]["name"]) == (SERVER, "cart <1>")
    api.put(NAMES, {"names": [{"kind": "user", "uuid": "admin", "name": "The admin"}]})
    initiator = api.get("/ext/v1/audit?limit=1").json["events"][0]["initiator"]
    assert (initiator["id"], initiator["name"]) == ("admin", "The admin")


def test_pages_show_names_with_the_ids_on_hover(api: Client, named: str):
    for path in ("consumers", f"consumers/{SERVER}", f"hosts/{named}", "changes", "search?q=shop"):
        page = api.get(f"/ui/{path}").text
        assert "cart &lt;1&gt;" in page, path
    for path in ("consumers", f"consumers/{SERVER}", f"hosts/{named}"):
        page = api.get(f"/ui/{path}").text
        assert f'title="{PROJECT}">web shop<' in page, path
        assert f'title="{USER}">ann<' in page, path
    assert api.get("/ui/search?q=cart").headers["Location"].endswith(f"/ui/consumers/{SERVER}")


@pytest.mark.usefixtures("named")
def test_a_plan_has_the_names_of_what_is_moved(api: Client):
    api.provider("other", VCPU=8)
    plan = api.post("/ext/v1/plans", {"goal": {"empty": ["host"]}}).json
    assert (len(plan["moves"]), plan["names"]) == (2, {SERVER: "cart <1>"})
    page = api.get("/ui/moves?goal=empty&hosts=host").text
    assert "cart &lt;1&gt;" in page


@pytest.mark.usefixtures("named")
def test_a_bound_token_lists_names_of_what_it_sees_only(api: Client):
    cluster_of(api, "edge-01")
    assert api.get(f"{NAMES}?cluster=edge").json["names"] == []
    node = api.get("/ext/v1/clusters/edge/nodes").json["nodes"][0]["resource_provider"]
    other = SERVER[:-1] + "3"
    inventory = next(iter(api.get(f"/resource_providers/{node}/inventories").json["inventories"]))
    assert api.claim({node: {inventory: 1}}, other, project_id="inner", user_id=USER).status_code == 204
    api.put(NAMES, {"names": [{"kind": "project", "uuid": "inner", "name": "x"}]})
    assert listed(api, "cluster=edge") == [("user", USER, "ann"), ("project", "inner", "x")]


@pytest.mark.usefixtures("named")
def test_commands_show_names_and_take_the_first_digits(application: Flask, tmp_path: Path):
    rows = [{"ID": PROJECT, "Name": "shop"}, {"ID": "", "Name": "x"}, {"ID": PROJECT, "Name": "y"}]
    projects = tmp_path / "projects.json"
    projects.write_text(json.dumps(rows))
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps([{"ID": SERVER, "Name": "cart-1", "Status": "ACTIVE", "Networks": {}}]))
    with hosted(application) as url:
        vague = run("--url", url, "names", "load", str(projects))
        loaded = run("--url", url, "names", "load", "--kind", "project", str(projects), "-o", "value")
        guessed = run("--url", url, "names", "load", str(servers), "-o", "value")
        names = run("--url", url, "names", "list", "-f", "value", "-c", "kind", "-c", "name", "-c", "uuid")
        one = run("--url", url, "allocation", "show", SERVER[:8] + "00000000000000000000000")
        several = run("--url", url, "allocation", "show", SERVER[:8])
        unknown = run("--url", url, "allocation", "show", "ffffffff")
        short = run("--url", url, "allocation", "show", "1a2b")
        table = run("--url", url, "allocation", "list", "-o", "table", "-c", "consumer", "-c", "project")
        whole = run("--url", url, "allocation", "list", "-f", "csv", "-c", "consumer", "-c", "project")
    assert (vague.returncode, "add --kind" in vague.stderr) == (2, True)
    assert (loaded.stdout, guessed.stdout) == ("project 1 0 2\n", "consumer 1 0 0\n")
    assert loaded.stderr == f"Skipped [1] x: has no ID\nSkipped [2] {PROJECT}: comes again\n"
    assert names.stdout.splitlines() == [
        f"consumer cart-1 {SERVER}", f"project shop {PROJECT}", f"user ann {USER}",
    ]  # fmt: skip
    assert one.returncode == 1
    assert several.stderr == (
        f"placement: several consumers begin with {SERVER[:8]}: {SERVER} (cart-1), {SERVER[:-1]}2\n"
    )
    assert unknown.stderr == "placement: no consumer that holds something begins with ffffffff\n"
    assert (short.returncode, "neither a UUID nor the first 8 digits" in short.stderr) == (2, True)
    assert [line.split() for line in table.stdout.splitlines()[3:5]] == [
        ["|", "cart-1", "|", "shop", "|"], ["|", "1a2b3c4d", "|", "shop", "|"],
    ]  # fmt: skip
    assert f'"{SERVER}","{PROJECT}"' in whole.stdout
