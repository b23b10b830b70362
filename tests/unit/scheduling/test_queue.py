"""The queue of the scheduling loop, with a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from placement.scheduling.pending import BindingWay, PendingPod
from placement.scheduling.queue import (
    LONGEST_BACKOFF_SECONDS,
    PARKED_SECONDS,
    QUARANTINE_SECONDS,
    QueueState,
    SchedulingQueue,
)
from placement.sync.service import PodId


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> SchedulingQueue:
    return SchedulingQueue(clock)


def pod(name: str, **given: Any) -> PendingPod:
    """A pod of the shape of all, unless something else is given."""
    stated = {"priority": 0, "created_at": "2026-01-01T00:00:00Z", "shape": b"all", "gang": frozenset()}
    stated |= {
        "manifest": {"metadata": {"name": name}},
        "other_gates": (),
        "way": BindingWay.BINDING,
        **given,
    }
    return PendingPod(id=PodId("default", name, f"uid-{name}"), **stated)


def put(queue: SchedulingQueue, *names: str, **given: Any) -> None:
    for name in names:
        queue.put(pod(name, **given))


def taken(queue: SchedulingQueue, most: int = 200) -> list[str]:
    """The names of the pods that are tried now."""
    return [entry.pod.id.name for entry in queue.take(most)[0]]


def park(queue: SchedulingQueue, *names: str) -> None:
    """No node takes the pods that were just taken."""
    for name in names:
        entry = queue.get(f"uid-{name}")
        assert entry is not None
        assert entry.state is QueueState.TAKEN
        queue.park(entry, "no room")


def back_off(queue: SchedulingQueue, name: str, longest: float = LONGEST_BACKOFF_SECONDS) -> None:
    entry = queue.get(f"uid-{name}")
    assert entry is not None
    assert entry.state is QueueState.TAKEN
    queue.back_off(entry, "refused", longest)


def placed(queue: SchedulingQueue, *names: str) -> None:
    """A node takes the pods, which are bound."""
    for name in names:
        entry = queue.get(f"uid-{name}")
        assert entry is not None
        queue.placed(entry)
    for name in names:
        queue.remove(f"uid-{name}")


# -- the order --------------------------------------------------------------------------------------------


def test_the_most_important_and_oldest_come_first(queue: SchedulingQueue) -> None:
    queue.put(pod("young", created_at="2026-01-01T00:00:02Z"))
    queue.put(pod("old", created_at="2026-01-01T00:00:01Z"))
    queue.put(pod("important", created_at="2026-01-01T00:00:03Z", priority=10))
    queue.put(pod("least", priority=-5))
    queue.put(pod("as-old", created_at="2026-01-01T00:00:01Z"))
    assert taken(queue) == ["important", "old", "as-old", "young", "least"]


def test_no_more_are_taken_than_asked_for(queue: SchedulingQueue) -> None:
    put(queue, "a", "b", "c")
    assert taken(queue, 2) == ["a", "b"]
    assert taken(queue, 2) == ["c"]
    assert taken(queue, 2) == []


def test_pods_behind_gates_of_others_wait_until_these_are_gone(queue: SchedulingQueue) -> None:
    put(queue, "a", other_gates=("example.com/gate",))
    assert taken(queue) == []
    assert queue.counts[QueueState.GATED] == 1
    put(queue, "a")
    assert taken(queue) == ["a"]


def test_a_taken_pod_that_changes_is_not_taken_twice(queue: SchedulingQueue) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    put(queue, "a", shape=b"other")
    assert taken(queue) == []
    placed(queue, "a")
    assert len(queue) == 0
    assert not any(queue.counts.values())


def test_the_former_pod_of_a_name_and_the_next_one_are_told_apart(queue: SchedulingQueue) -> None:
    put(queue, "a")
    following = PendingPod(
        PodId("default", "a", "uid-next"), {}, BindingWay.BINDING, 0, "2026", b"all", frozenset(), ()
    )
    queue.put(following)
    assert queue.uids_of("default", "a") == {"uid-a", "uid-next"}
    queue.remove("uid-a")
    assert queue.uids_of("default", "a") == {"uid-next"}
    queue.remove("uid-next")
    assert queue.uids_of("default", "a") == set()


# -- gangs ------------------------------------------------------------------------------------------------


def test_members_of_a_gang_are_taken_together_even_if_they_are_many(queue: SchedulingQueue) -> None:
    gang = frozenset({"default/g"})
    put(queue, "m1", gang=gang, shape=b"1")
    put(queue, "between", priority=5)
    put(queue, "m2", gang=gang, shape=b"2")
    put(queue, "m3", gang=gang, shape=b"3", priority=9)
    assert taken(queue, 2) == ["m3", "m1", "m2"]
    assert taken(queue, 2) == ["between"]


def test_a_gang_is_tried_again_as_a_whole_when_a_member_comes(queue: SchedulingQueue) -> None:
    gang = frozenset({"default/g"})
    put(queue, "m1", "m2", gang=gang)
    assert taken(queue) == ["m1", "m2"]
    park(queue, "m1", "m2")
    assert taken(queue) == []
    put(queue, "m3", gang=gang)
    assert taken(queue) == ["m1", "m2", "m3"]


def test_a_gang_is_woken_as_a_whole(queue: SchedulingQueue, clock: Clock) -> None:
    gang = frozenset({"default/g"})
    put(queue, "m1", "m2", "m3", gang=gang)
    assert taken(queue) == ["m1", "m2", "m3"]
    park(queue, "m1", "m2", "m3")
    queue.wake()
    clock.seconds += 1
    assert taken(queue) == ["m1", "m2", "m3"]


def test_what_is_written_into_the_status_of_a_member_wakes_no_gang(queue: SchedulingQueue) -> None:
    gang = frozenset({"default/g"})
    put(queue, "m1", "m2", gang=gang)
    assert taken(queue) == ["m1", "m2"]
    park(queue, "m1", "m2")
    put(queue, "m1", gang=gang, manifest={"status": {"conditions": ["told"]}})
    assert taken(queue) == []


# -- parked shapes ----------------------------------------------------------------------------------------


def test_others_of_a_refused_shape_are_parked_without_being_tried(queue: SchedulingQueue) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    park(queue, "a")
    put(queue, "b")
    put(queue, "c", shape=b"other")
    tried, untried = queue.take(200)
    assert [entry.pod.id.name for entry in tried] == ["c"]
    assert [(entry.pod.id.name, entry.reason) for entry in untried] == [("b", "no room")]


def test_one_of_each_shape_is_tried_when_something_helps_and_twice_as_many_while_it_does(
    queue: SchedulingQueue, clock: Clock
) -> None:
    names = [f"p{number}" for number in range(9)]
    put(queue, *names)
    put(queue, "other", shape=b"other")
    assert sorted(taken(queue)) == sorted([*names, "other"])
    park(queue, *names, "other")
    queue.wake()
    clock.seconds += 1
    assert taken(queue) == ["p0", "other"]
    placed(queue, "p0")
    park(queue, "other")
    assert taken(queue) == ["p1", "p2"]
    placed(queue, "p1")
    park(queue, "p2")
    # Refused: only what happens from now on helps, and then one is tried.
    clock.seconds += 1
    assert taken(queue) == []
    queue.wake()
    clock.seconds += 1
    assert taken(queue) == ["p2", "other"]


def test_what_happens_while_the_service_decides_is_not_missed(queue: SchedulingQueue, clock: Clock) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    queue.wake()
    park(queue, "a")
    clock.seconds += 1
    assert taken(queue) == ["a"]


def test_a_shape_that_is_refused_again_and_again_pauses_but_less_than_a_second(
    queue: SchedulingQueue, clock: Clock
) -> None:
    put(queue, "a", "b")
    pauses = []
    assert taken(queue) == ["a", "b"]
    park(queue, "a", "b")
    for _ in range(8):
        queue.wake()
        seconds = queue.seconds_until_next()
        assert seconds is not None
        if seconds:
            assert taken(queue) == []
        clock.seconds += seconds
        pauses.append(seconds)
        assert taken(queue) == ["a"]
        park(queue, "a")
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1] < 1


def test_parked_pods_are_tried_from_time_to_time_though_nothing_happens(
    queue: SchedulingQueue, clock: Clock
) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    park(queue, "a")
    seconds = queue.seconds_until_next()
    assert seconds == PARKED_SECONDS
    clock.seconds += seconds
    assert taken(queue) == ["a"]


def test_a_parked_pod_that_changes_is_tried_at_once(queue: SchedulingQueue) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    park(queue, "a")
    put(queue, "a", shape=b"smaller")
    assert taken(queue) == ["a"]


# -- time -------------------------------------------------------------------------------------------------


def test_a_pod_that_fails_is_tried_again_after_one_second_and_then_less_often_up_to_ten(
    queue: SchedulingQueue, clock: Clock
) -> None:
    put(queue, "a")
    pauses = []
    for _ in range(6):
        assert taken(queue) == ["a"]
        back_off(queue, "a")
        assert taken(queue) == []
        seconds = queue.seconds_until_next()
        assert seconds is not None
        pauses.append(seconds)
        clock.seconds += seconds
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_a_pod_in_quarantine_is_tried_ever_less_often_and_others_go_on(
    queue: SchedulingQueue, clock: Clock
) -> None:
    put(queue, "odd", shape=b"odd")
    pauses = []
    for _ in range(12):
        assert taken(queue) == ["odd"]
        back_off(queue, "odd", QUARANTINE_SECONDS)
        seconds = queue.seconds_until_next()
        assert seconds is not None
        pauses.append(seconds)
        put(queue, "other")
        assert taken(queue) == ["other"]
        placed(queue, "other")
        clock.seconds += seconds
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == QUARANTINE_SECONDS


def test_what_a_pod_is_told_does_not_end_its_pause(queue: SchedulingQueue) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    back_off(queue, "a")
    put(queue, "a", manifest={"status": {"conditions": ["told"]}})
    assert taken(queue) == []
    entry = queue.get("uid-a")
    assert entry is not None
    assert entry.pod.manifest == {"status": {"conditions": ["told"]}}


def test_a_pod_that_went_and_came_pauses_no_more(queue: SchedulingQueue, clock: Clock) -> None:
    put(queue, "a")
    assert taken(queue) == ["a"]
    back_off(queue, "a")
    queue.remove("uid-a")
    put(queue, "a")
    assert taken(queue) == ["a"]
    back_off(queue, "a")
    # The former pause ends at the same time, and counts once.
    clock.seconds += 1
    assert taken(queue) == ["a"]
    assert taken(queue) == []


def test_nothing_is_waited_for_where_nothing_waits(queue: SchedulingQueue) -> None:
    assert queue.seconds_until_next() is None
    put(queue, "a")
    assert queue.seconds_until_next() == 0
    assert taken(queue) == ["a"]
    assert queue.seconds_until_next() is None


# -- pods that others want to be near ---------------------------------------------------------------------

NEAR = {"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}}
SPREAD = {"spec": {"topologySpreadConstraints": [{}]}}


@pytest.mark.parametrize("manifest", [NEAR, SPREAD])
def test_a_pod_that_depends_on_others_is_tried_when_one_gets_a_place(
    queue: SchedulingQueue, clock: Clock, manifest: Any
) -> None:
    put(queue, "dependent", shape=b"dependent", manifest=manifest)
    put(queue, "independent", shape=b"independent")
    assert taken(queue) == ["dependent", "independent"]
    park(queue, "dependent", "independent")
    put(queue, "other")
    assert taken(queue) == ["other"]
    placed(queue, "other")
    clock.seconds += 1
    assert taken(queue) == ["dependent"]
    park(queue, "dependent")
    clock.seconds += 1
    assert taken(queue) == []


def test_a_pod_that_was_refused_in_the_call_that_placed_another_one_is_tried_again(
    queue: SchedulingQueue, clock: Clock
) -> None:
    put(queue, "dependent", shape=b"dependent", manifest=NEAR)
    put(queue, "other")
    assert taken(queue) == ["dependent", "other"]
    park(queue, "dependent")
    placed(queue, "other")
    clock.seconds += 1
    assert taken(queue) == ["dependent"]


def test_time_behind_gates_of_others_does_not_count(queue, clock):
    put(queue, "a", other_gates=("kueue",))
    clock.seconds += 50
    put(queue, "a")
    found = queue.get("uid-a")
    assert found is not None
    assert found.since == clock.seconds
