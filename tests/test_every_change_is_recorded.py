"""Every write leaves records in its transaction that name who did what; /ext/v1/audit lists them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.http.registry import registry_of
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.reservations import WEB, reservation
from tests.server import BACKENDS, database_url
from tests.statements import Scene

SENT = "req-00000000-1111-2222-3333-444444444444"
NO_CHANGE = {"PUT node again", "PUT pod again", "POST nodes 20 again", "POST /ext/v1/claims 50 again"}


def audited(api: Client, **query: str) -> list[dict[str, Any]]:
    answer = api.as_("admin").get("/ext/v1/audit?" + "&".join(f"{k}={v}" for k, v in query.items()))
    assert answer.status_code == 200, answer.text
    return answer.json["events"]


def documents(event: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each["content"] for each in event["attachments"]}


def test_every_route_that_writes_leaves_a_record_of_the_caller(api: Client):
    scene = Scene(api)
    for name, (method, path, body) in scene.calls().items():
        content = body()
        answer = api.call(method, path, content)
        assert answer.status_code < 300, (name, answer.text)
        found = audited(api, request_id=answer.headers["x-openstack-request-id"])
        is_question = method == "GET" or "preview" in name or "preemption" in name
        assert bool(found) == (not is_question and name not in NO_CHANGE), name
        assert {event["initiator"]["id"] for event in found} <= {"admin"}


def test_a_record_says_who_what_and_when_in_the_words_of_cadf(api: Client):
    before = datetime.datetime.now(datetime.UTC)
    nova = api.as_("nova:service", X_Roles="service,reader")
    root = nova.provider("root", VCPU=8)
    consumer = "00000000-0000-0000-0000-000000000001"
    nova.claim({root: {"VCPU": 2}}, consumer)
    answer = nova.put(
        f"/allocations/{consumer}", nova.allocations({root: {"VCPU": 3}}, 1), X_Openstack_Request_Id=SENT
    )
    assert answer.status_code == 204
    (event,) = audited(api, request_id=SENT)
    assert (
        event.items()
        >= {
            "typeURI": "http://schemas.dmtf.org/cloud/audit/1.0/event",
            "eventType": "activity",
            "action": "update",
            "outcome": "success",
            "target": {"typeURI": "service/placement/allocations", "id": consumer},
            "observer": {"id": "target", "typeURI": "service/placement", "name": "placement"},
            "initiator": {
                "typeURI": "service/security/account/user",
                "id": "nova",
                "project_id": "service",
                "roles": ["reader", "service"],
                "host": {"address": "127.0.0.1"},
                "request_id": answer.headers["x-openstack-request-id"],
                "global_request_id": SENT,
            },
        }.items()
    )
    assert (
        before <= datetime.datetime.fromisoformat(event["eventTime"]) <= datetime.datetime.now(datetime.UTC)
    )
    assert documents(event) == {
        "before": {"allocations": {root: {"VCPU": 2}}},
        "after": {
            "allocations": {root: {"VCPU": 3}},
            "project_id": "project",
            "user_id": "user",
            "consumer_type": "INSTANCE",
        },
    }


def test_a_claim_of_many_new_consumers_has_a_record_for_each(api: Client):
    root = api.provider("root", VCPU=100)
    consumers = [f"00000000-0000-0000-0000-{number:012}" for number in range(20)]
    assert (
        api.post("/allocations", {who: api.allocations({root: {"VCPU": 1}}) for who in consumers}).status_code
        == 204
    )
    found = audited(api, target_type="allocations", action="create")
    assert sorted(event["target"]["id"] for event in found) == consumers
    assert all(documents(event)["after"]["allocations"] == {root: {"VCPU": 1}} for event in found)


def test_what_is_refused_leaves_nothing(api: Client):
    root = api.provider("root", VCPU=1)
    consumer = "00000000-0000-0000-0000-000000000001"
    body = api.allocations({root: {"VCPU": 2}})
    assert api.put(f"/allocations/{consumer}", body).status_code == 409
    assert api.post("/resource_providers", {"name": "root"}).status_code == 409
    assert audited(api, consumer_uuid=consumer) == []
    assert len(audited(api, target_type="resource_provider")) == 1


def test_providers_and_what_belongs_to_them_show_before_and_after(api: Client):
    root = api.provider("root", VCPU=8)
    api.put(f"/resource_providers/{root}", {"name": "renamed"})
    api.delete(f"/resource_providers/{root}/inventories")
    api.put(
        f"/resource_providers/{root}/traits",
        {"traits": ["HW_CPU_X86_VMX"], "resource_provider_generation": api.generation(root)},
    )
    api.delete(f"/resource_providers/{root}/traits")
    api.delete(f"/resource_providers/{root}")
    told = [
        (event["target"]["typeURI"].rpartition("/")[2], event["action"], documents(event))
        for event in reversed(audited(api, target=root))
    ]
    inventory = told[1][2]["after"]
    assert inventory["VCPU"]["total"] == 8
    at = {"parent_provider_uuid": None}
    assert told == [
        ("resource_provider", "create", {"after": {"name": "root", **at}}),
        ("inventories", told[1][1], {"after": inventory}),
        (
            "resource_provider",
            "update",
            {"before": {"name": "root", **at}, "after": {"name": "renamed", **at}},
        ),
        ("inventories", "delete", {"before": inventory}),
        ("traits", "update", {"before": {"traits": []}, "after": {"traits": ["HW_CPU_X86_VMX"]}}),
        ("traits", "update", {"before": {"traits": ["HW_CPU_X86_VMX"]}, "after": {"traits": []}}),
        ("resource_provider", "delete", {"before": {"name": "renamed"}}),
    ]


def test_pods_and_nodes_are_told_by_their_names(api: Client):
    cluster_of(api, "n1")
    pod = api.put(f"{CLUSTER}/pods/default/web", pod_manifest()).json
    (created,) = audited(api, target="edge/default/web")
    assert (created["action"], documents(created)["after"]["node"]) == ("create", "n1")
    assert audited(api, consumer_uuid=pod["consumer_uuid"]) == [created]
    api.delete(f"{CLUSTER}/pods/default/web")
    api.delete(f"{CLUSTER}/nodes/n1")
    assert [event["action"] for event in audited(api, target="edge/default/web")] == ["delete", "create"]
    of_node = audited(api, target="edge/n1", target_type="node")
    assert [event["action"] for event in of_node] == ["delete", "create"]
    gone = audited(api, target_type="resource_provider", action="delete")
    assert len(gone) == documents(of_node[1])["after"]["providers_created"]


def test_the_page_of_a_pod_shows_its_own_changes_only(api: Client, database: Database):
    cluster_of(api, "n1")
    api.put(f"{CLUSTER}/pods/default/web", pod_manifest())
    written = datetime.datetime(2021, 3, 4, 5, 6, 7)
    with database.write() as transaction:
        transaction.execute(sa.update(tables.audit_records).values(recorded_at=written))
    # What others do later is neither its history nor its last change.
    api.put("/traits/CUSTOM_LATER")
    api.put(f"{CLUSTER}/pods/default/web-2", pod_manifest())
    page = api.get("/ui/pods/edge/default/web").text
    (own,) = audited(api, target="edge/default/web")
    history = page[page.index('id="history"') :]
    assert re.findall(r"/ui/changes/(\d+)", history) == [own["id"]]
    assert set(re.findall(r'datetime="([^"]+)"', page)) == {"2021-03-04 05:06:07Z"}


def test_pages_lead_through_all_records_newest_first(api: Client):
    for number in range(5):
        api.put(f"/traits/CUSTOM_{number}")
    page = api.get("/ext/v1/audit?target_type=trait&limit=2").json
    seen = [event["target"]["id"] for event in page["events"]]
    while page["next"] is not None:
        page = api.get(f"/ext/v1/audit?target_type=trait&limit=2&marker={page['next']}").json
        seen += [event["target"]["id"] for event in page["events"]]
    assert seen == [f"CUSTOM_{number}" for number in reversed(range(5))]


def test_times_bound_what_is_listed(api: Client):
    api.put("/traits/CUSTOM_OLD")
    between = datetime.datetime.now(datetime.UTC).isoformat().replace("+", "%2B")
    api.put("/traits/CUSTOM_NEW")
    assert [event["target"]["id"] for event in audited(api, since=between)] == ["CUSTOM_NEW"]
    assert [event["target"]["id"] for event in audited(api, until=between)] == ["CUSTOM_OLD"]


def test_only_administrators_see_records(embedded: Client):
    assert embedded.as_("nova", X_Roles="service").get("/ext/v1/audit").status_code == 403
    assert embedded.as_("nova", X_Roles="service").get("/ext/v1/events").status_code == 200
    assert embedded.as_("eve", X_Roles="reader").get("/ext/v1/events").status_code == 403


def test_long_documents_are_left_out_and_hide_no_change(api: Client):
    """Their hashes tell documents apart, and members that differ are named."""
    root = api.provider("root")
    names = [f"CUSTOM_{number:0100}" for number in range(100)]
    for name in names:
        api.put(f"/traits/{name}")
    for chosen in (names, names[1:], names):
        api.put(
            f"/resource_providers/{root}/traits",
            {"traits": chosen, "resource_provider_generation": api.generation(root)},
        )
    shown = [documents(event) for event in audited(api, target=root, target_type="traits")]
    after = [each["after"] for each in shown]
    assert all(set(each) == {"omitted_characters", "sha256", "changed"} for each in after)
    assert [each["sha256"] for each in after][::2] == [shown[1]["before"]["sha256"]] * 2
    assert after[0]["sha256"] != after[1]["sha256"] == shown[0]["before"]["sha256"]
    assert [each["changed"] for each in after] == [["traits"]] * 3


@pytest.mark.parametrize("node", [None, "n1"])
def test_a_pod_that_is_reported_again_as_it_is_has_no_record(api: Client, node: str | None):
    cluster_of(api, "n1")
    path, manifest = f"{CLUSTER}/pods/default/web", pod_manifest(node=node)
    assert api.put(path, manifest).status_code == 201
    for _ in range(3):
        assert api.put(path, manifest).status_code == 200
    assert [event["action"] for event in audited(api, target_type="pod")] == ["create"]
    if node is not None:
        # A pod that is placed keeps what it was placed with; one that runs is reported as it is.
        manifest["metadata"]["labels"]["tier"] = "web"
        assert api.put(path, manifest).status_code == 200
        assert [event["action"] for event in audited(api, target_type="pod")] == ["update", "create"]


@pytest.fixture(params=BACKENDS)
def silent(request: pytest.FixtureRequest) -> Iterator[Client]:
    with database_url(request.param) as url:
        database = Database(url, audits=False)
        application = build(database, compatible())
        yield Client(application.test_client())
        registry_of(application).close()
        database.dispose()


def test_where_it_is_switched_off_nothing_is_kept(silent: Client):
    root = silent.provider("root", VCPU=8)
    silent.claim({root: {"VCPU": 1}})
    cluster_of(silent, "n1")
    assert silent.put(f"{CLUSTER}/pods/default/web", pod_manifest()).status_code == 201
    assert audited(silent) == []
    assert silent.get("/ext/v1/events").status_code == 404


def test_records_that_cannot_be_written_undo_what_they_tell_of(api: Client, database: Database):
    """They share the message with the commit on PostgreSQL."""
    api.put("/traits/CUSTOM_A")
    rename = "ALTER TABLE audit_records RENAME TO {}"
    with database.engine.connect() as connection:
        connection.exec_driver_sql(rename.format("hidden"))
        connection.commit()
    assert api.put("/traits/CUSTOM_B").status_code == 503
    with database.engine.connect() as connection:
        connection.exec_driver_sql("ALTER TABLE hidden RENAME TO audit_records")
        connection.commit()
    assert api.get("/traits/CUSTOM_B").status_code == 404
    assert api.put("/traits/CUSTOM_C").status_code == 201
    assert [event["target"]["id"] for event in audited(api)] == ["CUSTOM_C", "CUSTOM_A"]


def test_a_reservation_that_is_used_up_holds_nothing_and_nothing_is_told_of_it(api: Client):
    cluster_of(api, "n1")
    kept = api.put(f"{CLUSTER}/reservations/kept", reservation("kept", "4", allocateOnce=False))
    consumer = kept.json["consumer_uuid"]
    token = api.get("/ext/v1/events").json["next"]

    def place(name: str, **options: Any) -> str:
        """Place a pod; the id of the request."""
        answer = api.put(f"{CLUSTER}/pods/default/{name}", pod_manifest("4", **options))
        assert answer.status_code == 201, answer.text
        return answer.headers["x-openstack-request-id"]

    def told(request_id: str) -> list[tuple[str, dict[str, Any]]]:
        found = audited(api, request_id=request_id, target=consumer)
        return [(event["action"], documents(event)) for event in found]

    def changes() -> dict[str, str]:
        nonlocal token
        answer = api.get(f"/ext/v1/events?wait=0&since={token}").json
        token = answer["next"]
        return {each["uuid"]: each["action"] for each in answer["events"] if each["type"] == "consumer"}

    owner = place("owner", labels=WEB)
    assert api.used_by(consumer) == {}
    ((action, shown),) = told(owner)
    assert (action, shown.keys()) == ("delete", {"before"})
    assert changes()[consumer] == "delete"
    place("other")
    other = api.delete(f"{CLUSTER}/pods/default/other")
    assert told(other.headers["x-openstack-request-id"]) == []
    assert consumer not in changes()
    gone = api.delete(f"{CLUSTER}/pods/default/owner")
    ((action, shown),) = told(gone.headers["x-openstack-request-id"])
    assert (action, shown) == ("create", {"after": {"allocations": api.used_by(consumer)}})
    assert shown["after"]["allocations"]
    assert changes()[consumer] == "create"
