"""What was refused is not sent again before there is a reason, and failures wait longer and longer."""

import pytest

from placement.sync import sending as module
from placement.sync.pause import Pause
from placement.sync.sending import Rejections


@pytest.fixture
def clock(monkeypatch):
    """A list whose only item is the present."""
    present = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: present[0])
    return present


def test_pauses_double_up_to_a_bound_and_begin_again():
    pause = Pause(longest=4.0)
    bounds = [0.5, 1.0, 2.0, 4.0, 4.0]
    for bound in bounds:
        assert bound / 2 <= pause.after_failure() <= bound
    pause.after_success()
    assert pause.after_failure() <= 0.5
    # Many callers do not come back together.
    assert len({Pause().after_failure() for _ in range(50)}) > 10


def test_what_is_wrong_in_itself_waits_until_it_changes(clock):
    found = Rejections()
    found.add("pod", "as it was", conflict=False)
    clock[0] += 10_000
    assert found.holds_back("pod", "as it was")
    assert not found.holds_back("pod", "changed")
    assert not found.holds_back("other", "as it was")
    assert found.ripe() == set()


def test_a_conflict_is_tried_again_less_and_less_often(clock):
    found, waits = Rejections(), []
    for _ in range(4):
        found.add("pod", "same", conflict=True)
        assert found.holds_back("pod", "same")
        begun = clock[0]
        while found.holds_back("pod", "same"):
            clock[0] += 0.05
        waits.append(clock[0] - begun)
        assert found.ripe() == {"pod"}
    assert waits[3] > 2 * waits[0]


def test_conflicts_can_be_made_due_at_once_but_not_what_is_wrong(clock):
    found = Rejections()
    found.add("conflict", 1, conflict=True)
    found.add("wrong", 1, conflict=False)
    assert found.ripen() == {"conflict"}
    assert found.holds_back("wrong", 1)
    found.forgive()
    assert not found.holds_back("wrong", 1)
