"""Figures of several worker processes as one: files in a directory that they all map, one set per process.

`share` has to come before anything imports prometheus_client, which looks for the directory once. Without a
directory each process tells of itself only.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# Memory, where the system has it as a directory: nobody needs the figures after the service has ended.
_MEMORY = "/dev/shm"
_PREFIX = "placement-metrics-"
# Locked as long as any process of the service runs, which no signal can prevent.
_LOCK = "lock"
# Processes that ended are kept as one; no process has this number.
_ENDED = 0
_KEPT = ("counter", "histogram")
_ATTEMPTS = 3


def share() -> None:
    """Choose a directory for this process and those it starts, unless there is one; it goes with this one.

    Directories of this user whose processes were all killed are removed.
    """
    if os.environ.get(VARIABLE):
        return
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
    _remove_abandoned(Path(place))
    directory = os.environ[VARIABLE] = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
    _occupy(Path(directory))
    owner = os.getpid()

    def remove() -> None:
        # Processes that it started inherit this.
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


def _occupy(directory: Path) -> None:
    """Lock a directory until this process and all that it starts have ended.

    Forked processes share the lock. Process ids would not do: they are given again after a restart, and
    containers that share the directory have ids of their own.
    """
    unready = directory / f"{_LOCK}.new"
    held = os.open(unready, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.set_inheritable(held, True)
    # Under its name it is locked already, so a process that starts now cannot take it for abandoned.
    unready.rename(directory / _LOCK)


def _remove_abandoned(place: Path) -> None:
    """Remove the directories of this user in which no process holds the lock."""
    for directory in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if directory.lstat().st_uid == os.geteuid() and not _is_occupied(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_occupied(directory: Path) -> bool:
    """Return whether a process holds the lock. Raises OSError where there is none to hold."""
    held = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False


def exposition(more: Iterable[Any] = ()) -> bytes:
    """Return all figures in the text format of Prometheus; `more` are collectors of this process alone."""
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, multiprocess

    registry = CollectorRegistry() if os.environ.get(VARIABLE) else None
    if registry is not None:
        _untyped(multiprocess).MultiProcessCollector(registry)
    collected = b"".join(generate_latest(each) for each in more)
    for attempt in range(_ATTEMPTS):
        try:
            return generate_latest(registry or REGISTRY) + collected
        except FileNotFoundError:
            # A process ended just now, and its figures were put to the others.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def counts(name: str) -> list[tuple[dict[str, str], int]]:
    """Return what a counter of that name has counted in all processes so far: its labels, and how often."""
    sample_name = f"{name}_total"
    return [
        (sample.labels, int(sample.value))
        for family in _counters(sample_name)
        for sample in family.samples
        if sample.name == sample_name and sample.value
    ]


def _counters(sample_name: str) -> list[Any]:
    """Families of counters, that of the sample among them."""
    from prometheus_client import REGISTRY, multiprocess

    directory = os.environ.get(VARIABLE)
    if not directory:
        return list(REGISTRY.restricted_registry([sample_name]).collect())
    for _ in range(_ATTEMPTS):
        # Those of histograms are many times longer.
        files = [str(file) for file in Path(directory).glob("counter_*.db")]
        with suppress(FileNotFoundError):
            return list(_untyped(multiprocess).MultiProcessCollector.merge(files, accumulate=True))
    return []


def forget(pid: int) -> None:
    """Keep what a process that ended has counted, together with others that ended, and no more of it."""
    from prometheus_client import mmap_dict, multiprocess

    files = _untyped(mmap_dict).MmapedDict
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    _untyped(multiprocess).mark_process_dead(pid, directory)
    for kind in _KEPT:
        file = Path(directory) / f"{kind}_{pid}.db"
        if not file.exists():
            continue
        left = list(files(str(file), read_mode=True).read_all_values())
        kept = files(str(Path(directory) / f"{kind}_{_ENDED}.db"))
        file.unlink()
        for key, value, timestamp in left:
            kept.write_value(key, kept.read_value(key)[0] + value, timestamp)
        kept.close()


def _untyped(module: object) -> Any:
    """Return a module whose functions have no types."""
    return module
