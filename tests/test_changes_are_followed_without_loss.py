"""/ext/v1/events tells every change of providers and consumers once, from wherever a reader left off."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import sqlalchemy as sa

from placement.audit import events
from placement.engine.domain.audit import Action, TargetKind
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

EVENTS = "/ext/v1/events"
FIRST = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d01"


def begin(api: Client) -> str:
    answer = api.get(EVENTS)
    assert answer.json["events"] == []
    token: str = answer.json["next"]
    return token


def since(api: Client, token: str) -> tuple[dict[tuple[str, str], str], str]:
    """Action by type and uuid, and the next token."""
    answer = api.get(f"{EVENTS}?since={token}&wait=0")
    assert answer.status_code == 200, answer.text
    told = {(event["type"], event["uuid"]): event["action"] for event in answer.json["events"]}
    assert len(told) == len(answer.json["events"])
    return told, answer.json["next"]


def test_changes_are_told_once_and_each_thing_once(api: Client):
    token = begin(api)
    root = api.provider("root", VCPU=8)
    consumer = str(uuid.uuid4())
    api.claim({root: {"VCPU": 1}}, consumer)
    told, token = since(api, token)
    assert told == {("resource_provider", root): "update", ("consumer", consumer): "create"}
    assert since(api, token)[0] == {}
    api.delete(f"/allocations/{consumer}")
    told, token = since(api, token)
    assert told == {("resource_provider", root): "update", ("consumer", consumer): "delete"}
    api.delete(f"/resource_providers/{root}")
    assert since(api, token)[0] == {("resource_provider", root): "delete"}


def test_a_provider_that_came_back_is_there(api: Client):
    own = str(uuid.uuid4())
    token = begin(api)
    for _ in range(2):
        api.post("/resource_providers", {"name": "again", "uuid": own})
        api.delete(f"/resource_providers/{own}")
    api.post("/resource_providers", {"name": "again", "uuid": own})
    (event,) = api.get(f"{EVENTS}?since={token}").json["events"]
    assert event == {"type": "resource_provider", "uuid": own, "action": "update", "generation": 0}


def test_pods_are_consumers_whoever_moves_them(api: Client):
    cluster_of(api, "n1")
    token = begin(api)
    pods = [api.put(f"{CLUSTER}/pods/default/p{number}", pod_manifest()).json for number in range(2)]
    consumers = {("consumer", pod["consumer_uuid"]) for pod in pods}
    told, token = since(api, token)
    assert {key: action for key, action in told.items() if key[0] == "consumer"} == dict.fromkeys(
        consumers, "create"
    )
    api.delete(f"{CLUSTER}/pods/default/p0")
    told, _ = since(api, token)
    assert told["consumer", pods[0]["consumer_uuid"]] == "delete"


def test_who_missed_too_much_reads_all_again(api: Client, monkeypatch: pytest.MonkeyPatch):
    """Changes of the same few things count, too: the latest of them must not be cut off."""
    monkeypatch.setattr(events, "_MOST_CHANGES", 10)
    root = api.provider("root", VCPU=8)
    token = begin(api)
    for _ in range(6):
        api.claim({root: {"VCPU": 1}}, FIRST)
        api.delete(f"/allocations/{FIRST}")
    assert api.get(f"{EVENTS}?since={token}").status_code == 410


def test_pods_that_ended_are_no_consumers_any_more(api: Client):
    cluster_of(api, "n1")
    running = pod_manifest(uid=FIRST, node="n1", status={"cpuset": "0-3"}, phase="Running")
    pod = api.put(f"{CLUSTER}/pods/default/web", running).json
    token = begin(api)
    over = pod_manifest(uid=FIRST, node="n1", phase="Succeeded")
    assert api.put(f"{CLUSTER}/pods/default/web", over).json["phase"] == "Succeeded"
    assert since(api, token)[0]["consumer", pod["consumer_uuid"]] == "delete"
    assert api.get(f"/allocations/{pod['consumer_uuid']}").json["allocations"] == {}


def test_a_token_that_is_too_old_says_to_read_all_again(api: Client, monkeypatch: pytest.MonkeyPatch):
    token = begin(api)
    now = events.time.time()
    monkeypatch.setattr(events.time, "time", lambda: now + 25 * 3600)
    answer = api.get(f"{EVENTS}?since={token}")
    assert answer.status_code == 410
    assert "read all providers and consumers again" in answer.text
    assert answer.json["errors"][0]["code"] == "placement.events.token_too_old"
    assert api.get(EVENTS, Accept="text/html").status_code == 406


def test_who_missed_what_nobody_listed_or_comes_from_another_database_reads_all_again(
    api: Client, database: Database
):
    token = begin(api)
    with database_url("sqlite") as url:
        other = Database(url)
        foreign = events.Events(other).now().token
        other.dispose()
    assert api.get(f"{EVENTS}?since={foreign}").status_code == 410
    with database.write() as transaction:
        transaction.record(Action.UPDATE, TargetKind.DATABASE, "elsewhere")
    assert api.get(f"{EVENTS}?since={token}").status_code == 410
    assert since(api, begin(api))[0] == {}


def test_writers_that_commit_out_of_order_are_all_told_of(api: Client, database: Database):
    """A long transaction that began first and ends last is neither missed nor holds up the others."""
    if database.backend.is_embedded:
        pytest.skip("writers of SQLite are serial")
    late, early = api.provider("late"), api.provider("early")
    token = begin(api)
    rename = "UPDATE resource_providers SET revision = pg_current_xact_id() WHERE uuid = '%s'"
    with database.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(rename % late)
        api.put(f"/resource_providers/{early}", {"name": "earlier"})
        told, token = since(api, token)
        assert told == {("resource_provider", early): "update"}
        assert since(api, token)[0] == {}
        connection.exec_driver_sql("COMMIT")
    assert since(api, token)[0] == {("resource_provider", late): "update"}


def test_a_database_that_moved_to_another_server_is_stamped_anew(api: Client, database: Database):
    """Stamps of another server may be larger than any that this one gives for long."""
    if database.backend.is_embedded:
        pytest.skip("the counter of SQLite is in the file")
    from placement.storage import schema

    api.put("/traits/CUSTOM_A")
    with database.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE audit_records SET revision = '1000000000'::xid8")
        connection.commit()
    schema.upgrade(database)
    with database.read() as connection:
        ahead = sa.text("SELECT count(*) FROM audit_records WHERE revision > pg_current_xact_id()")
        assert connection.execute(ahead).scalar_one() == 0


# -- the real service ------------------------------------------------------------------------------------


def test_nothing_is_lost_under_concurrent_writers(two_workers: RunningServer):
    """A reader that polls two workers while writers race knows in the end what there is."""
    service = Service(two_workers.url)
    token = service.must("GET", EVENTS)["next"]
    roots = [_provider(service, f"root-{number}") for number in range(4)]
    done = threading.Event()
    known: dict[tuple[str, str], Any] = {}

    def follow() -> None:
        nonlocal token
        mine = Service(two_workers.url)
        while True:
            was_done = done.is_set()
            body = mine.must("GET", f"{EVENTS}?since={token}&wait=1")
            known.update(
                {
                    (event["type"], event["uuid"]): event.get("generation", event["action"])
                    for event in body["events"]
                }
            )
            token = body["next"]
            if was_done and not body["events"]:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    writers = [threading.Thread(target=_churn, args=(two_workers.url, roots, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    follower.join(PATIENCE_SECONDS)
    assert not follower.is_alive()
    listed = service.must("GET", "/ext/v1/allocations")["consumers"]
    there = {key[1] for key, action in known.items() if key[0] == "consumer" and action != "delete"}
    assert there == {consumer["consumer_uuid"] for consumer in listed}
    for root in roots:
        now = service.must("GET", f"/resource_providers/{root}")["generation"]
        assert known["resource_provider", root] == now


def _provider(service: Service, name: str) -> str:
    made = service.must("POST", "/resource_providers", {"name": name})["uuid"]
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1000}}}
    service.must("PUT", f"/resource_providers/{made}/inventories", body)
    return str(made)


def _churn(url: str, roots: list[str], seed: int) -> None:
    service, chance = Service(url), random.Random(seed)
    mine: list[str] = []
    for number in range(25):
        if mine and chance.random() < 0.4:
            service.must("DELETE", f"/allocations/{mine.pop()}")
            continue
        consumer = str(uuid.UUID(int=seed * 1000 + number + 1))
        held = Client.allocations({chance.choice(roots): {"VCPU": 1}})
        service.must("PUT", f"/allocations/{consumer}", held)
        mine.append(consumer)


def _stream(url: str, last: str | None = None, wait: int = 25, user: str = "admin") -> requests.Response:
    headers = {"X-Auth-Token": user, "X-Roles": "admin", "Accept": "text/event-stream"}
    if last is not None:
        headers["Last-Event-ID"] = last
    return requests.get(f"{url}{EVENTS}?wait={wait}", headers=headers, stream=True, timeout=PATIENCE_SECONDS)


def _stream_with_a_place(url: str, user: str = "admin") -> requests.Response:
    """A stream, once it is noticed that those who followed before have gone."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (answer := _stream(url, user=user)).status_code == 503 and time.monotonic() < end:
        answer.close()
        time.sleep(0.1)
    assert answer.status_code == 200
    return answer


def _events(answer: requests.Response) -> Iterator[tuple[str, Any]]:
    """(field, value) of the lines of a stream, data read as JSON."""
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        field, _, value = line.partition(": ")
        if field:
            yield field, json.loads(value) if field == "data" else value


def test_a_stream_tells_what_changes_while_it_is_open_and_goes_on_after_it(served: RunningServer):
    service = Service(served.url)
    with _stream(served.url) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        told = _events(answer)
        first = next(value for field, value in told if field == "id")
        root = _provider(service, f"streamed-{uuid.uuid4()}")
        seen = next(value for field, value in told if field == "data")
        assert (seen["type"], seen["uuid"]) == ("resource_provider", root)
    service.must("DELETE", f"/resource_providers/{root}")
    with _stream(served.url, first, wait=0) as answer:
        data = [value for field, value in _events(answer) if field == "data"]
    assert {"type": "resource_provider", "uuid": root, "action": "delete"} in data
    with _stream(served.url, "nonsense") as answer:
        assert answer.status_code == 400


def test_those_who_wait_hold_up_nobody_and_too_many_are_refused(served: RunningServer):
    streams = [_stream_with_a_place(served.url) for _ in range(6)]
    try:
        # One user leaves a quarter of the places to others.
        refused = _stream(served.url)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        assert "6 requests of this user" in refused.text
        streams += [_stream_with_a_place(served.url, "another") for _ in range(2)]
        refused = _stream(served.url, user="a-third")
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        # Reads and writes have their own threads.
        service = Service(served.url)
        _provider(service, f"meanwhile-{uuid.uuid4()}")
        assert service.call("GET", "/resource_providers").status == 200
    finally:
        for stream in streams:
            stream.close()


def test_readers_that_left_give_their_places_back(served: RunningServer):
    from tests.patience import eventually

    for stream in [_stream(served.url) for _ in range(8)]:
        stream.close()

    def status() -> int:
        with _stream(served.url, wait=0) as answer:
            return answer.status_code

    eventually(200, status)


def _followed(database: Database, token: str) -> threading.Thread:
    """Somebody who would wait longer than this test has patience."""
    follower = events.Events(database)

    def wait() -> None:
        follower.since(token, 10 * PATIENCE_SECONDS)
        follower.close()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_waiting_is_over_when_something_changes(database: Database):
    waiting = _followed(database, events.Events(database).now().token)
    with database.write() as transaction:
        transaction.record(Action.CREATE, TargetKind.ALLOCATIONS, FIRST, consumer=FIRST)
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()


def test_waiting_is_over_when_nobody_listens_any_more(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events.request_scope, "caller_is_gone", lambda: True)
    waiting = _followed(database, events.Events(database).now().token)
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()


def test_waiting_is_answered_with_what_changed(served: RunningServer):
    service = Service(served.url)
    token = service.must("GET", EVENTS)["next"]
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(Service(served.url).must("GET", f"{EVENTS}?since={token}&wait=25"))
    )
    waiting.start()
    root = _provider(service, f"awaited-{uuid.uuid4()}")
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    assert {event["uuid"] for event in found[0]["events"]} == {root}


def test_a_service_that_stops_ends_its_streams():
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1) as server,
        _stream(server.url) as stream,
    ):
        told = _events(stream)
        assert next(value for field, value in told if field == "id")
        server.process.terminate()
        # One that was cut off would not be complete.
        list(told)
