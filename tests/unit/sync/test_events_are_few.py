"""However much is rejected, and however often: an Event for each thing said, and no more than may wait."""

from __future__ import annotations

import io
from typing import Any

from placement.sync.api_server import ApiServerError
from placement.sync.events import RejectionEvents
from placement.sync.journal import Journal
from placement.sync.watched_objects import Key, ObjectKind


class Recorder:
    """Takes Events as an API server does."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.refuses = False

    def post(self, path: str, body: Any) -> Any:
        if self.refuses:
            raise ApiServerError("forbidden (403)", 403)
        item = f"{path}/{body['metadata']['name']}"
        if item in self.held:
            raise ApiServerError("it is there (409)", 409)
        self.held[item] = dict(body)
        return body

    def get(self, path: str) -> Any:
        return self.held.get(path)

    def patch(self, path: str, body: Any) -> Any:
        self.held[path] |= body
        return self.held[path]


def pod(name: str, uid: str = "one") -> tuple[Key, dict[str, Any]]:
    metadata = {"namespace": "default", "name": name, "uid": uid, "resourceVersion": "7"}
    return Key(ObjectKind.POD, "default", name), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def events() -> tuple[RejectionEvents, Recorder, io.StringIO]:
    recorder, trouble = Recorder(), io.StringIO()
    return RejectionEvents(recorder, Journal(io.StringIO(), trouble)), recorder, trouble  # type: ignore[arg-type]


def test_the_same_is_said_once_until_it_was_well():
    told, recorder, _ = events()
    for _ in range(5):
        told.rejected(*pod("web"), "no room")
    told.write_all()
    (event,) = recorder.held.values()
    assert (event["count"], event["message"], event["metadata"]["namespace"]) == (1, "no room", "default")
    told.settled(pod("web")[0])
    told.rejected(*pod("web"), "no room")
    told.write_all()
    assert [each["count"] for each in recorder.held.values()] == [2]
    told.rejected(*pod("web"), "something else")
    told.rejected(*pod("web", uid="another of that name"), "no room")
    told.write_all()
    assert len(recorder.held) == 3


def test_names_and_messages_stay_within_what_kubernetes_takes_and_too_many_are_dropped():
    told, recorder, _ = events()
    told.rejected(*pod("x" * 253), "y" * 5000)
    told.write_all()
    (event,) = recorder.held.values()
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) <= 1024
    for number in range(500):
        told.rejected(*pod(f"web-{number}"), "no room")
    told.write_all()
    assert 1 < len(recorder.held) <= 101


def test_a_refusal_is_told_once_and_stops_nothing():
    told, recorder, trouble = events()
    recorder.refuses = True
    for number in range(3):
        told.rejected(*pod(f"web-{number}"), "no room")
    told.write_all()
    assert trouble.getvalue() == "events: forbidden (403)\n"
