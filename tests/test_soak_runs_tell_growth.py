"""A soak run calls what grows growing and what is flat flat; a short run has no verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import MOST_GROWTH, MOST_SLOWER, slope, slower, verdict

ROOT = Path(__file__).resolve().parents[1]


def points(per_hour: float, minutes: int = 60) -> list[tuple[float, float]]:
    """A worker of 100 MiB that grows by so many MiB per hour, a point each minute."""
    return [(minute, 100 + per_hour * minute / 60) for minute in range(minutes)]


@pytest.mark.parametrize("per_hour", [-6.0, 0.0, 30.0])
def test_a_slope_is_per_hour(per_hour: float):
    assert slope(points(per_hour)) == pytest.approx(per_hour)


def test_a_slope_is_that_of_all_points():
    noisy = [(minute, mib + (-1) ** minute) for minute, mib in points(30)]
    assert slope(noisy) == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize(("per_hour", "growing"), [(MOST_GROWTH - 1, False), (MOST_GROWTH + 1, True)])
def test_more_than_the_bound_is_growing(per_hour: float, growing: bool):
    sentence, found = verdict(points(per_hour), 10)
    assert found is growing
    assert f"{per_hour:+.1f} MiB per hour after 10 minutes, {'GROWING' if growing else 'flat'}" in sentence


def test_the_warm_up_is_left_out():
    warming = [(minute, mib + min(minute, 10) * 10) for minute, mib in points(0)]
    assert verdict(warming, 0)[1]
    assert "+0.0 MiB per hour after 10 minutes, flat" in verdict(warming, 10)[0]


def test_a_short_run_has_no_verdict():
    assert verdict(points(600, minutes=14), 10) == ("too short to tell, 4 of 5 lines after 10 minutes", False)


@pytest.mark.parametrize(("times", "growing"), [(MOST_SLOWER - 0.1, False), (MOST_SLOWER + 0.1, True)])
def test_calls_that_take_longer_in_the_end_are_growing(times: float, growing: bool):
    waited = [(minute, 10 * (times if minute > 40 else 1)) for minute in range(60)]
    sentence, found = slower(waited, 10)
    assert found is growing
    assert sentence.endswith("GROWING (bound 1.5 times)" if growing else "flat (bound 1.5 times)")


def test_a_busy_minute_is_no_growth():
    waited = [(minute, 500.0 if minute in (57, 58) else 10.0) for minute in range(60)]
    assert slower(waited, 10)[1] is False


def test_a_run_of_seconds_works():
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.05", "--database", "sqlite"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum("audit_records +" in line for line in lines) > 0
    found = dict(line.split(": ") for line in lines[-6:])
    assert [name.split()[0] for name in found] == ["worker", "worker", "files", "threads", "rows", "p99"]
    assert set(found.values()) == {"too short to tell, 0 of 5 lines after 10 minutes"}
