"""The ten hottest routes call no more functions than recorded: what grows must be meant to grow."""

from __future__ import annotations

import subprocess

import pytest

from tests.calls import PYTHON, measured, minor, more, recorded
from tests.server import BACKENDS

ROUTES = 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_route_calls_more_than_recorded(backend: str):
    python = recorded()["python"]
    if minor(python) != minor(PYTHON):
        pytest.skip(f"NOT RUN: the counts are those of Python {python}")
    now, before = measured(backend), recorded()["calls"][backend]
    assert now.keys() == before.keys()
    assert len(now) == ROUTES
    assert more(now, before) == {}, (
        f"make it simpler; what has to be is recorded by python -m tests.calls. Counted with Python "
        f"{PYTHON}, recorded with {python}"
    )


def test_settings_of_the_service_in_the_environment_change_no_count(monkeypatch: pytest.MonkeyPatch):
    seen: list[dict[str, str]] = []

    def run(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[str]:
        seen.append(env)
        return subprocess.CompletedProcess([], 0, "{}")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES", "True")
    measured("sqlite")
    assert {name for name in seen[0] if name.startswith("OS_")} == {
        "OS_API__AUTH_STRATEGY",
        "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS",
    }


def test_a_count_that_grows_is_found():
    assert more({"a": 2, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 1}) == {"a": (1, 2)}
