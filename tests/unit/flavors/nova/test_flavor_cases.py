"""Every case of the copied table, and of ours, through the runner that takes tables from the command line."""

import json
from pathlib import Path

import pytest

from tests.cases import flavor

DATA = Path(__file__).parents[3] / "data"
DOCUMENT = json.loads((DATA / "flavor.json").read_text())
RULES = json.loads((DATA / "flavor-rules.json").read_text())["cases"]
CASES = {case["id"]: case for case in DOCUMENT["cases"]}


def test_the_table_has_the_format_the_runner_takes():
    assert DOCUMENT["format"] == flavor.FORMAT
    assert len(CASES) == 260


@pytest.mark.parametrize("case", [*DOCUMENT["cases"], *RULES], ids=lambda case: case["id"])
def test_the_case_holds(case):
    assert list(flavor.run({"cases": [case]}, None)) == [(case["id"], None)]


def test_the_runner_says_what_differs():
    for name in ("tr-vgpu", "nu-nodes-0", "di-00", "xs-000", "mx-invalid-flavor", "cs-12"):
        wrong = {**CASES[name], "expect": {"error": "something_else"}}
        ((_, reason),) = flavor.run({"cases": [wrong]}, None)
        assert "something_else" in reason
    ((_, reason),) = flavor.run({"cases": [{"id": "x", "kind": "y", "expect": {}}]}, None)
    assert "unknown kind y" in reason
