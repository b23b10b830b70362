"""Projects, users and consumers get names, which lists, pages and commands show beside their ids."""

from __future__ import annotations

import pytest

from placement.engine.domain.errors import Conflict
from placement.engine.domain.given_names import GivenNameKind, NameKey
from placement.names.service import GivenNames
from placement.storage.database import Database
from tests.client import Client, detail

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
