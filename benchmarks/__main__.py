"""Measure what is asked of the service, part by part, and print the table of goals.

python -m benchmarks                                     the quick parts, ten minutes on two quiet cores
python -m benchmarks pods changed                        these parts
python -m benchmarks memory incumbent                    the long ones; the last installs OpenStack Placement
python -m benchmarks --write docs/measurements.md        the figures go into that table, too
python -m benchmarks --scale 0.01 changed                only whether it works

The service runs on PostgreSQL with one or two workers. Each part is a module that, run by itself,
measures more and at other sizes: `python -m benchmarks.pods --help`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import answers, changed, goals, incumbent, kubernetes, ordered, pods, synchronization
from benchmarks.goals import Figures, Measured
from benchmarks.report import LeftOut

_PARTS: dict[str, Callable[[float], Figures]] = {
    "changed": changed.figures,
    "ordered": ordered.figures,
    "answers": answers.figures,
    "synchronization": synchronization.figures,
    "kubernetes": kubernetes.figures,
    "pods": pods.figures,
}
_LONG_PARTS: dict[str, Callable[[float], Figures]] = {
    "memory": pods.memory,
    "incumbent": incumbent.figures,
}
_ROOT = Path(__file__).resolve().parents[1]
_MEASURED_CODE = ("placement", "migrations", "benchmarks", "tests", "constraints")


def main() -> None:
    """Measure, print, and write where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = {**_PARTS, **_LONG_PARTS}
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--write", type=Path, metavar="FILE", help="a document with a table of the goals")
    parser.add_argument("--scale", type=float, default=1.0, help="of numbers of hosts, and of times")
    given = parser.parse_args()
    if unknown := set(given.parts) - known.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.write and given.scale != 1:
        parser.error("--write is for what was measured at full scale")
    if given.write:
        goals.refreshed(given.write.read_text(), {})
    found: dict[str, Measured] = {}
    commit = _commit()
    for name in given.parts or _PARTS:
        found |= _measured(name, known[name], given.scale, commit)
        if given.write:
            given.write.write_text(goals.refreshed(given.write.read_text(), found))
    print(f"\n### Goals{'' if given.scale == 1 else f', AT SCALE {given.scale}'}\n")
    print("\n".join(goals.table(found)))


def _measured(name: str, part: Callable[[float], Figures], scale: float, commit: str) -> dict[str, Measured]:
    """What a part measured, by the work of its goals."""
    before, started = os.getloadavg()[0], time.monotonic()
    try:
        figures = part(scale)
    except LeftOut as reason:
        print(f"{name}: NOT MEASURED, {reason}", flush=True)
        return {}
    load = f"{before:.1f}, {os.getloadavg()[0]:.1f}"
    print(f"\n{name}, {time.monotonic() - started:.0f} s, load before and after {load}:")
    found = {}
    for goal in goals.GOALS:
        if goal.part == name:
            print(f"  {goal.work}: {figures[goal.key]} (wanted: {goal.wanted})", flush=True)
            found[goal.work] = Measured(figures[goal.key], load, commit)
    return found


def _commit() -> str:
    """The commit that is measured, with a plus if files differ from it; empty outside of a checkout."""
    commit = _git("rev-parse", "--short", "HEAD")
    return commit + ("+" if _git("status", "--porcelain", "--", *_MEASURED_CODE) else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
