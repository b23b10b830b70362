"""Metrics of several worker processes as one: files in a directory that they all map, one set per process.

`share` must run before anything imports prometheus_client, which looks for the directory once. Without a
directory each process reports only itself.
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
# A directory in memory, where the system has one: figures are not needed after the service has ended.
_MEMORY = "/dev/shm"
_PREFIX = "placement-metrics-"
# Locked as long as any process of the service runs, which no signal can prevent.
_LOCK = "lock"
# The number under which all ended processes are kept; no process has it.
_ENDED = 0
_KEPT = ("counter", "histogram")
_ATTEMPTS = 3


def share() -> None:
    """Choose a directory for this process and its children, unless there is one; remove it at exit.

    Directories of this user without live processes, which were all killed, are removed.
    """
    if os.environ.get(VARIABLE):
        return
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
    _remove_abandoned(Path(place))
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    os.environ[VARIABLE] = str(directory)
    # Locked until this process and all that it starts have ended: forked processes share the lock. Process
    # ids would not do: they are reused after a restart, and containers that share the directory have ids of
    # their own.
    unready = directory / f"{_LOCK}.new"
    held = os.open(unready, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.set_inheritable(held, True)
    # It gets its name when locked, so a process that starts now cannot take the directory for abandoned.
    unready.rename(directory / _LOCK)
    owner = os.getpid()

    def remove() -> None:
        # Child processes inherit this.
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


def _remove_abandoned(place: Path) -> None:
    """Remove the directories of this user in which no process holds the lock."""
    for directory in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if directory.lstat().st_uid == os.geteuid() and not _is_occupied(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_occupied(directory: Path) -> bool:
    """Return whether a process holds the lock. Raises OSError if there is no lock file."""
    held = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False


def exposition(more: Iterable[Any] = ()) -> bytes:
    """Return all metrics in the text format of Prometheus; `more` are collectors of this process alone."""
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, multiprocess

    registry = CollectorRegistry() if os.environ.get(VARIABLE) else None
    if registry is not None:
        _untyped(multiprocess).MultiProcessCollector(registry)
    collected = b"".join(generate_latest(each) for each in more)
    for attempt in range(_ATTEMPTS):
        try:
            return generate_latest(registry or REGISTRY) + collected
        except FileNotFoundError:
            # A process ended just now, and its figures were added to the figures of ended ones.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def counts(name: str) -> list[tuple[dict[str, str], int]]:
    """Return the counts of the counter of that name in all processes so far: labels and number."""
    from prometheus_client import REGISTRY, multiprocess

    sample_name, directory = f"{name}_total", os.environ.get(VARIABLE)
    families: list[Any] = []
    if not directory:
        families = list(REGISTRY.restricted_registry([sample_name]).collect())
    for _ in range(_ATTEMPTS if directory else 0):
        # Only counters: files of histograms are many times longer.
        files = [str(file) for file in Path(directory or "").glob("counter_*.db")]
        with suppress(FileNotFoundError):
            families = list(_untyped(multiprocess).MultiProcessCollector.merge(files, accumulate=True))
            break
    samples = (sample for family in families for sample in family.samples)
    return [(each.labels, int(each.value)) for each in samples if each.name == sample_name and each.value]


def forget(pid: int) -> None:
    """Add the counts of an ended process to the counts of other ended ones, and drop the rest of it."""
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
    """Return a module as Any, because its functions have no types."""
    return module
