"""What is stored of a pod is read back the same, and what another release wrote spoils nothing."""

import datetime
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from placement.engine.numa.host import ExclusiveLevel, Holding, NumaAmounts
from placement.pods.state.model import RecordedPod, SchedulerSettings
from placement.pods.store import statements
from placement.pods.store.answers import PodAnswer
from placement.pods.store.rows import (
    answer_of,
    consumer_of,
    is_claim,
    is_unreadable,
    record_of,
    rescued,
    status_of,
)
from placement.pods.store.statements import StoredPod
from placement.storage.node_parts import PodRow
from tests.kubernetes import pod_manifest

UID = "7b1f2c9e-0000-4000-8000-000000000001"
THEN = datetime.datetime(2024, 5, 6, 7, 8, 9)
PLACED = {"node": "n1", "resource_provider": "root", "qos": "LSR", "kubernetes_qos": "Guaranteed"}
TOLD = {"phase": "Running", "scheduled": True, "cpuset": "0-3", "annotations": {"a": "b"}, "score": 50}
LISTS = {"containers": ("main", "side"), "warnings": ("careful",)}
ANSWER = PodAnswer(
    "default", "p", UID, UID, **PLACED, **TOLD, **LISTS, lifts_cfs_quota=True, changed_at=THEN.isoformat()
)
HELD = Holding(frozenset(range(4)), ExclusiveLevel.PCPU_LEVEL, NumaAmounts({0: {"cpu": 4000}}), False)
RECORD = RecordedPod("default", "p", UID, UID, "LSE", {"cpu": 4000}, HELD)


def stored(status, node_id=5):
    return StoredPod(1, "default", "p", UID, {}, status, node_id, "n1", 7, "root", THEN)


def row(status):
    return PodRow(7, 1, "default", "p", UID, status)


def test_what_is_told_of_a_pod_and_what_it_holds_is_read_as_it_was_written():
    assert answer_of(stored(status_of(ANSWER, None))) == ANSWER
    bare = PodAnswer("default", "p", UID, UID, "n1", "root", changed_at=THEN.isoformat())
    assert status_of(bare, None)["told"] == {}
    assert answer_of(stored(status_of(bare, None))) == bare
    assert record_of(row(status_of(ANSWER, RECORD))) == RECORD


def test_of_a_damaged_row_what_can_be_read_is_told():
    for nothing in (None, [], {}, {"told": 5}):
        answer = answer_of(stored(nothing))
        assert (answer.name, answer.node) == ("p", "n1")
        assert answer.unreadable == ("the stored row of this pod cannot be read",)
    status = status_of(ANSWER, None)
    status["told"] |= {"containers": 5, "score": "x"}
    answer = answer_of(stored(status))
    assert answer == replace(ANSWER, containers=(), score=None, unreadable=answer.unreadable)
    assert [text.rpartition(" ")[2] for text in answer.unreadable] == ["told.containers", "told.score"]


def test_the_consumer_is_what_the_row_says_else_the_uid():
    assert consumer_of(stored({"consumer": "other"})) == "other"
    assert consumer_of(stored({})) == UID
    assert consumer_of(stored(None)._replace(uid="no uuid")) == ""


def test_a_claim_is_what_was_placed_here_and_is_on_a_node():
    placed, reported = status_of(ANSWER, None), status_of(replace(ANSWER, scheduled=False), None)
    assert is_claim(stored(placed))
    assert not is_claim(stored(placed, node_id=None))
    assert not is_claim(stored(reported))


def test_a_record_that_cannot_be_read_is_rescued(monkeypatch: pytest.MonkeyPatch):
    manifest = pod_manifest("2", node="n1")
    manifest["metadata"]["name"] = "p"
    monkeypatch.setattr(statements, "cpus_of", lambda connection, consumer: frozenset({1, 2}))
    monkeypatch.setattr(statements, "pod_manifests", lambda connection, cluster, uids: [manifest])
    for record in (None, {}, {"consumer": UID, "cpus": "many"}, {"consumer": UID, "level": "new"}, 5):
        damaged = row({"record": record, "qos": "LSR"})
        assert record_of(damaged) is None
        found = rescued(MagicMock(), 1, "edge", SchedulerSettings(), damaged)
        assert (found.consumer, found.qos, found.requests["cpu"]) == (UID, "LSR", 2000)
        assert found.holding.cpus == {1, 2}
        assert found.unreadable


@pytest.mark.parametrize(
    "odd",
    [
        *({"consumer": odd} for odd in (None, 0, "", 5, ["x"])),
        *({member: {odd: {"cpu": 1}}} for member in ("amounts", "loose") for odd in ("-1", "4097", "x")),
        *({member: odd} for member in ("amounts", "loose") for odd in ([1], "x", [])),
        *({"cpus": odd} for odd in (None, 0, False, [], 5)),
        *({"pools": odd} for odd in ("12", [-1], [10**30], {"1": 2}, None)),
        *({"affinity": odd} for odd in ([1], "x", 5, [])),
        *({"membership": {"gang": odd, "least": 2}} for odd in (None, 5)),
        *(
            {"keeps": {"owners": [], "since": THEN.isoformat(), **odd}}
            for odd in ({"order": "1"}, {"labels": {"a": 1}})
        ),
    ],
    ids=str,
)
def test_a_record_with_a_member_of_an_odd_type_cannot_be_read(odd):
    """One that was read made every look at its node fail, as where accounts are sorted by consumer."""
    record = {"consumer": UID, "labels": {}}
    assert record_of(row({"record": record})) is not None
    assert record_of(row({"record": {**record, **odd}})) is None
    status = {**status_of(ANSWER, RECORD), "record": {**record, **odd}}
    assert is_unreadable(stored(status)._replace(manifest={"kind": "Pod"}))
