"""Figures of the whole: how large the product is, how it reads, and how many modules a request crosses.

`python -m tests.readability` says where complex functions, banners and the like are.

`make house` prints them beside those recorded in house_figures.json; `python -m tests.house --write` records
the present ones. A figure that grows fails tests/test_the_house_grows_no_worse.py.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import placement
from benchmarks.report import print_table
from tests.journeys import Journey, stops_of, traced, world
from tests.readability import modules_below, places_in

PACKAGE = Path(placement.__file__).parent
ROOT = PACKAGE.parent
_WORDS = (ROOT / "docs" / "words.md", ROOT / "docs" / "contributing-words.md")
RECORD = Path(__file__).with_name("house_figures.json")
_MORE_IS_BETTER = frozenset({"median lines of a module"})
# What depends on the clock, such as a file that is looked at once a second, is not passed each time.
_TRACES = 15
# The modules that they cross are those of the others, and a few more.
_BESIDE = frozenset({"pod with rules", "pod and its deletion", "query with an explanation"})


def figures() -> dict[str, int]:
    """Return the present figures by name."""
    return {**_of_sources(), **_of_reading(), **_of_journeys()}


def recorded() -> dict[str, int]:
    """Return the recorded figures by name."""
    found: dict[str, int] = json.loads(RECORD.read_text())
    return found


def worse(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the figures that got worse, as before and now."""
    return {
        name: (before[name], value)
        for name, value in now.items()
        if (value < before[name] if name in _MORE_IS_BETTER else value > before[name])
    }


def _of_sources() -> dict[str, int]:
    modules = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    lines = [len(text.splitlines()) for text in modules.values()]
    contracts = (ROOT / "pyproject.toml").read_text()
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    return {
        "lines": sum(lines),
        "modules": len(modules),
        "median lines of a module": int(statistics.median(lines)),
        "lines of tests": sum(len(path.read_text().splitlines()) for path in tests),
        "entries of docs/words.md": sum(_entries(path.read_text()) for path in _WORDS),
        "imports against the contracts": len(
            set(re.findall(r'"placement[\w.]* -> placement[\w.]*"', contracts))
        ),
    }


def _of_reading() -> dict[str, int]:
    return {figure: len(places) for figure, places in places_in(modules_below(PACKAGE)).items()}


def _of_journeys() -> dict[str, int]:
    found = {}
    with world("sqlite") as journeys:
        for name, make in journeys.items():
            traces = [traced(make) for _ in range(_TRACES)]
            if name not in _BESIDE:
                found[f"modules of a {name}"] = min(len(stops_of(journey)) for journey in traces)
            if name == "pod" or name in _BESIDE:
                found[f"functions of a {name}"] = min(len(journey.calls) for journey in traces)
                found[f"returns to a module of a {name}"] = min(_returns(journey) for journey in traces)
    return found


def _returns(journey: Journey) -> int:
    """Return how often the way comes back to a module that it had left."""
    left, here, count = set(), None, 0
    for module in journey.way:
        if module == here:
            continue
        count += module in left
        if here is not None:
            left.add(here)
        here = module
    return count


def _entries(words: str) -> int:
    rows = re.findall(r"^(?:\| (?!word |---)|\* \*\*)", words, re.MULTILINE)
    return len(rows)


def main() -> None:
    """Print the figures beside the recorded ones, or record them."""
    now = figures()
    if "--write" in sys.argv[1:]:
        RECORD.write_text(json.dumps(now, indent=2) + "\n")
    before = recorded()
    rows = [[name, str(before.get(name, "-")), str(value)] for name, value in now.items()]
    print_table("the house", ["figure", "recorded", "now"], rows)
    if found := worse(now, before):
        sys.exit(f"worse than recorded: {', '.join(found)}")


if __name__ == "__main__":
    main()
