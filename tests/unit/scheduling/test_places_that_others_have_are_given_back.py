"""What the scheduling loop does with places that the service says, told by parts that only take notes."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from placement.client.client import ServiceError
from placement.scheduling.evictions import Nomination
from placement.scheduling.inbox import Inbox
from placement.scheduling.loop import SchedulingLoop
from placement.scheduling.pending import PendingPod
from placement.sync.informer_store import InformerStore
from placement.sync.leadership import NotLeading
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


def refusal() -> dict[str, Any]:
    return {"status": 409, "error": {"code": "unschedulable", "detail": "0/1 nodes are available."}}


def test_a_lease_that_is_lost_during_preemption_ends_no_thread() -> None:
    parts = Parts([refusal()])
    parts.evictions.evict_for.side_effect = NotLeading("another process may lead")
    parts.come("high")
    parts.loop.cycle(0)
    assert parts.evictions.evict_for.called


def test_nodes_that_are_kept_since_are_left_out_of_the_next_search_for_victims() -> None:
    parts = Parts([refusal(), refusal()])
    kept: set[str] = set()
    parts.evictions.kept_from.side_effect = lambda _: set(kept)

    def keep(pod: PendingPod, _: Any) -> Nomination:
        kept.add("host-0")
        return Nomination(pod, "host-0", frozenset(), 0.0)

    parts.evictions.evict_for.side_effect = keep
    parts.come("first", "second")
    parts.loop.cycle(0)
    first, second = (
        call.args[1]["spec"].get("affinity") for call in parts.evictions.evict_for.call_args_list
    )
    assert first is None
    assert "host-0" in str(second)


def test_a_pod_that_fits_without_victims_is_tried_again_at_once() -> None:
    parts = Parts([refusal()], [place()])
    parts.evictions.evict_for.side_effect = lambda pod, _: Nomination(pod, "host-0", frozenset(), 0.0)
    parts.come("high")
    parts.loop.cycle(0)
    # A shape that was refused pauses for a moment.
    parts.loop.cycle(0.2)
    assert parts.asked == [["high"], ["high"]]
