"""Audit records are found by what people call their targets: now, and in the records of what is gone."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import pytest

from tests.client import Client, detail
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest

RACK, TWIN = "0a000000-0000-4000-8000-000000000001", "0a000000-0000-4000-8000-000000000002"


def targets(api: Client, called: str) -> set[tuple[str, str]]:
    answer = api.get(f"/ext/v1/audit?target={quote(called)}")
    assert answer.status_code == 200, answer.text
    return {(each["type"], each["id"]) for each in answer.json["targets"]}


def kinds(api: Client, called: str) -> set[str]:
    events = api.get(f"/ext/v1/audit?target={quote(called)}").json["events"]
    return {each["target"]["typeURI"].rpartition("/")[2] for each in events}


def test_a_host_and_its_uuid_have_the_same_changes(api: Client):
    host = api.provider("compute 1", VCPU=8)
    by_uuid = api.get(f"/ext/v1/audit?target={host}").json["events"]
    assert api.get("/ext/v1/audit?target=compute%201").json["events"] == by_uuid
    assert len(by_uuid) == 2
    assert targets(api, host.upper().replace("-", "")) == {("resource_provider", host)}


def test_a_host_that_is_gone_is_found_by_the_name_it_had(api: Client):
    old = api.provider("compute-1")
    assert api.delete(f"/resource_providers/{old}").status_code == 204
    assert targets(api, "compute-1") == {("resource_provider", old)}
    new = api.provider("compute-1")
    assert targets(api, "compute-1") == {("resource_provider", old), ("resource_provider", new)}
    assert len(api.get("/ext/v1/audit?target=compute-1").json["events"]) == 3


def test_a_name_of_several_things_finds_all_of_them(api: Client):
    host = api.provider("rack-1", VCPU=8)
    api.join(host, RACK, TWIN)
    for aggregate in (RACK, TWIN):
        assert api.put(f"/ext/v1/aggregates/{aggregate}", {"name": "rack-1"}).status_code == 200
    assert targets(api, "rack-1") == {
        ("resource_provider", host),
        ("aggregate", RACK),
        ("aggregate", TWIN),
    }
    assert kinds(api, "rack-1") == {"resource_provider", "inventories", "aggregates", "aggregate"}
    page = api.get("/ui/changes?target=rack-1").text
    assert "Several things are called so" in page


def test_nodes_pods_and_consumers_are_found_as_tables_print_them(api: Client):
    cluster_of(api, "n1")
    assert api.put(f"{CLUSTER}/pods/default/web", pod_manifest()).status_code == 201
    for called in ("web", "default/web", "edge/default/web"):
        assert targets(api, called) == {("pod", "edge/default/web")}, called
    for called in ("n1", "edge/n1"):
        assert ("node", "edge/n1") in targets(api, called), called
    assert ("cluster", "edge") in targets(api, "edge")
    consumer = str(uuid.uuid4())
    assert api.claim({api.provider("host", VCPU=2): {"VCPU": 1}}, consumer).status_code == 204
    assert targets(api, consumer) == {("allocations", consumer)}


def test_a_target_that_never_was_is_refused_with_what_was_meant(api: Client):
    api.provider("compute-17", VCPU=8)
    answer = api.get("/ext/v1/audit?target=compute-71")
    (error,) = answer.json["errors"]
    assert (answer.status_code, error["field"], error["suggestion"]) == (400, "target", "compute-17")
    assert "nothing is called compute-71 now, and no kept record is about it" in detail(answer)
    assert api.get(f"/ext/v1/audit?target={RACK}").status_code == 400
    api.provider("gpu-1.prod.eu-west.example.org")
    (error,) = api.get("/ext/v1/audit?target=gpu-1").json["errors"]
    assert error["suggestion"] == "gpu-1.prod.eu-west.example.org"
    page = api.get("/ui/changes?target=compute-71")
    assert (page.status_code, "nothing is called" in page.text) == (400, True)
    assert "target=compute-17" in page.text, "a link to what was meant"
    assert api.get("/ui/changes?target=compute-71&format=json").json["problems"]


@pytest.mark.parametrize("path", ["/ext/v1/audit?", "/ui/changes?format=json&"])
def test_times_are_written_as_people_write_them(api: Client, path: str):
    api.put("/traits/CUSTOM_X")
    member = "events" if "audit" in path else "changes"
    for text, count in (("since=yesterday", 1), ("since=2h", 1), ("until=yesterday%2014:00", 0)):
        assert len(api.get(f"{path}{text}").json[member]) == count, text
    assert len(api.get(f"{path}since=2026-01-01T00:00+02:00").json[member]) == 1
    refused = api.get(f"{path}since=someday")
    assert (refused.status_code, "someday" in refused.text) == (400, True)


def test_the_page_of_changes_keeps_its_filter(api: Client):
    for number in range(51):
        api.put(f"/traits/CUSTOM_{number}")
    page = api.get("/ui/changes?since=yesterday&until=").text
    assert 'name="since" size="14" value="yesterday"' in page
    assert "since=yesterday" in page.partition("marker=")[0]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "changes?snice=1",
            "hosts?sort=x",
            "map?aggregat=x",
            "consumers?name=x",
            "search?qq=x",
            "pods?nod=x",
        ),
        *("why?query=resources%3DVCPU:1&resources=VCPU:1", "room?kind=flavor&flavor=x", "moves?fre=1"),
    ],
)
def test_a_page_refuses_what_it_would_ignore(api: Client, path: str):
    answer = api.get(f"/ui/{path}")
    assert (answer.status_code, "is not a parameter of this request" in answer.text) == (400, True)
