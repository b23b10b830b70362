"""Every case of the copied table, and ours about reservations, through the runner of the command line."""

import json
from pathlib import Path

import pytest

from placement.common.manifest import Profile
from tests.cases import koordinator

DATA = Path(__file__).parents[3] / "data"
DOCUMENT = json.loads((DATA / "koordinator-cpuset.json").read_text())
CASES = {case["id"]: case for case in DOCUMENT["cases"]}
RESERVED = json.loads((DATA / "koordinator-reservations.json").read_text())["cases"]


def test_the_table_has_the_format_the_runner_takes():
    assert DOCUMENT["format"] == koordinator.FORMAT
    assert len(CASES) == 296
    assert {case["kind"] for case in CASES.values()} == koordinator.KINDS.keys()
    # They hold under design unless that reads them in another way.
    both = [case for case in CASES.values() if Profile.DESIGN in koordinator.profiles_of(case)]
    assert len(both) == 279


@pytest.mark.parametrize("case", [*DOCUMENT["cases"], *RESERVED], ids=lambda case: case["id"])
def test_the_case_holds(case):
    assert list(koordinator.run({"cases": [case]}, None)) == [(case["id"], None)]


def test_the_runner_says_what_differs():
    for kind in sorted(koordinator.KINDS):
        case = next(case for case in CASES.values() if case["kind"] == kind)
        wrong = {**case, "expect": {"something": "else"}}
        assert "expected" in koordinator.difference(wrong), kind
    ((_, reason),) = koordinator.run({"cases": [{"id": "x", "kind": "y", "input": {}, "expect": {}}]}, None)
    assert "unknown kind y" in reason
