"""Files of figures go with their service, however it ended; those of others stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placement.metrics import sharing
from tests.patience import PATIENCE_SECONDS, eventually

# A master with one worker, that print where their figures are and what their ids are.
_SERVICE = """
import os, signal
from placement.metrics import sharing
sharing.share()
worker = os.fork()
if worker:
    print(os.environ[sharing.VARIABLE], worker, flush=True)
signal.pause()
"""


class Processes:
    """A master and its worker."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if "MULTIPROC" not in name}
        self.master = subprocess.Popen(
            [sys.executable, "-c", _SERVICE], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.master.stdout is not None
        directory, worker = self.master.stdout.readline().split()
        self.directory, self.worker = Path(directory), int(worker)

    def kill_master(self) -> None:
        self.master.kill()
        self.master.wait(PATIENCE_SECONDS)

    def kill_worker(self) -> None:
        """Kill the worker, of which nobody waits for the end."""
        if self.worker:
            os.kill(self.worker, signal.SIGKILL)
            eventually(True, lambda: _is_gone(self.worker))
            self.worker = 0


def _is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def start() -> Iterator[Callable[[], Processes]]:
    made: list[Processes] = []

    def begin() -> Processes:
        made.append(Processes())
        return made[-1]

    yield begin
    for each in made:
        each.kill_master()
        each.kill_worker()
        assert each.master.stdout is not None
        each.master.stdout.close()
        for file in each.directory.glob("*"):
            file.unlink()
        if each.directory.exists():
            each.directory.rmdir()


def test_the_next_start_removes_what_killed_processes_left(start: Callable[[], Processes]):
    killed, alive = start(), start()
    killed.kill_master()
    # Its worker still counts.
    start()
    assert killed.directory.exists()
    killed.kill_worker()
    start()
    assert not killed.directory.exists()
    assert alive.directory.exists()


def test_a_directory_that_no_service_has_locked_yet_is_left(start: Callable[[], Processes]):
    beginning = start().directory.parent / f"placement-metrics-{os.getpid()}"
    beginning.mkdir()
    try:
        start()
        assert beginning.exists()
    finally:
        beginning.rmdir()


def test_directories_of_other_users_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = tmp_path / "placement-metrics-x"
    directory.mkdir()
    (directory / "lock").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
        sharing._remove_abandoned(tmp_path)
    assert directory.exists()
    sharing._remove_abandoned(tmp_path)
    assert not directory.exists()
