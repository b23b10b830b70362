"""What the scheduling loop does with places that the service says, told by parts that only take notes."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from placement.client.client import ServiceError
from placement.scheduling.inbox import Inbox
from placement.scheduling.loop import SchedulingLoop
from placement.sync.informer_store import InformerStore
from placement.sync.own_claims import OwnClaims
from placement.sync.pod_groups import PodGroups
from placement.sync.watched_objects import Key, ObjectKind, watched_object


class Parts:
    """A loop and the notes of all that it calls; `answers` are what the service says to each call."""

    def __init__(self, *answers: Any) -> None:
        self.inbox, self.service, self.binder, self.teller = Inbox(), MagicMock(), MagicMock(), MagicMock()
        self.evictions, self.rivals, self.pinned = MagicMock(), MagicMock(), MagicMock()
        self.service.place.side_effect = answers
        self.service.settings.return_value = {}
        self.evictions.kept_from.return_value = self.pinned.refused_for.return_value = set()
        self.evictions.nominated_node.return_value = None
        self.rivals.shares_nodes = True
        self.volumes = MagicMock()
        self.volumes.terms.return_value = []
        self.own = OwnClaims()
        self.loop = SchedulingLoop(
            self.inbox,
            self.service,
            {"ours"},
            MagicMock(),
            self.own,
            lambda _: None,
            self.binder,
            self.teller,
            self.evictions,
            PodGroups(InformerStore([])),
            self.volumes,
            self.rivals,
            self.pinned,
            lambda: True,
        )

    def come(self, *names: str, gang: str | None = None) -> None:
        """Pods come and ask for places, each of a shape of its own."""
        for name in names:
            annotations = {}
            if gang is not None:
                annotations = {
                    "gang.scheduling.koordinator.sh/name": gang,
                    "gang.scheduling.koordinator.sh/min-available": "2",
                }
            metadata = {"namespace": "default", "name": name, "uid": name, "labels": {"app": name}}
            manifest = {
                "kind": "Pod",
                "metadata": {**metadata, "annotations": annotations},
                "spec": {"schedulerName": "ours"},
            }
            self.inbox.saw(Key(ObjectKind.POD, "default", name), watched_object(manifest))

    @property
    def asked(self) -> list[list[str]]:
        """The names of the pods in each call of the service."""
        return [
            [pod["metadata"]["name"] for pod in call.args[0]] for call in self.service.place.call_args_list
        ]


def place(node: str = "host-0", **more: Any) -> dict[str, Any]:
    return {"status": 200, "pod": {"node": node, "annotations": {}, "changed_at": "then", **more}}


def test_a_place_whose_cpus_another_pod_has_is_given_back_and_not_bound() -> None:
    parts = Parts([place(shared_with=["default/other"])])
    parts.come("pod")
    parts.loop.cycle(0)
    assert not parts.binder.bind.called
    ((pod, changed_at), _) = parts.service.release.call_args
    assert (pod.name, changed_at) == ("pod", "then")
    assert "default/other" in parts.teller.waits.call_args.args[1]


def test_a_failing_call_is_halved_between_gangs_until_what_fails_is_alone() -> None:
    def answer(pods: Any, _: float) -> Any:
        if any(pod["metadata"]["name"] == "odd" for pod in pods):
            raise ServiceError("it fails", 500)
        return [place() for _ in pods]

    parts = Parts()
    parts.service.place.side_effect = answer
    parts.come("a")
    parts.come("g1", "g2", "g3", gang="g")
    parts.come("odd", "b")
    parts.loop.cycle(0)
    assert all({"g1", "g2", "g3"} & set(names) in (set(), {"g1", "g2", "g3"}) for names in parts.asked)
    assert [call.args[0].pod.id.name for call in parts.binder.bind.call_args_list] == [
        "a",
        "g1",
        "g2",
        "g3",
        "b",
    ]
    assert ["odd"] in parts.asked


@pytest.mark.parametrize("status", [None, 401, 403, 404, 429, 502, 503, 504])
def test_a_service_that_takes_nothing_is_asked_once(status: int | None) -> None:
    parts = Parts(ServiceError("it takes nothing", status))
    parts.come("a", "b", "c")
    parts.loop.cycle(0)
    assert len(parts.asked) == 1
    assert not parts.binder.bind.called
