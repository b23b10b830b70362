"""A soak run calls a growing worker growing and a flat one flat; a short run has no verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import MOST_GROWTH, slope, verdict

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


def test_a_run_of_seconds_works():
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.05", "--database", "sqlite"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum("audit_records +" in line for line in lines) > 0
    assert [line.partition(": ")[2] for line in lines[-2:]] == [
        "too short to tell, 0 of 5 lines after 10 minutes"
    ] * 2
