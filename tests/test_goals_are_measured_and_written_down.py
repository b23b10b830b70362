"""The table of what is asked of the service names every goal; a run changes the rows that it measured."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.goals import GOALS, NOT_MEASURED, Measured, refreshed, table
from tests.real_kubernetes import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
FIRST, OTHER = GOALS[0].work, GOALS[-1].work


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`python -m benchmarks` with these arguments, in this process."""

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        main()

    return run


def document(**measured: Measured) -> str:
    return "\n".join(["# Before", "", *table(measured), "", "After.", ""])


def test_the_document_has_the_table_of_today():
    text = (ROOT / "docs" / "measurements.md").read_text()
    assert refreshed(text, {}) == text


def test_only_rows_that_were_measured_change_and_goals_that_are_new_or_gone():
    old, new = Measured("5 ms", "0.2, 1.9", "abc1234"), Measured("4 ms", "0.3, 2.0", "def5678")
    text = document(**{FIRST: old, OTHER: old})
    assert refreshed(text, {OTHER: new}) == document(**{FIRST: old, OTHER: new})
    text = document().replace(FIRST, "something that nobody asks for any more")
    assert refreshed(text, {}) == document(**{FIRST: NOT_MEASURED})
    with pytest.raises(ValueError, match="there is no table of the goals"):
        refreshed("# Something else\n", {})


def test_a_part_says_what_it_measured_and_how_busy_the_machine_was(run, capsys):
    run("changed", "--scale", "0.002")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    figures = {row[0].removeprefix("| "): row[2:4] for row in rows}
    assert figures[FIRST] == ["not measured", ""]
    figure, load = figures[OTHER]
    assert figure.endswith("ms if nothing changed")
    assert len(load.split(", ")) == 2


def test_unknown_parts_and_figures_of_another_scale_are_refused(run, tmp_path: Path, capsys):
    file = tmp_path / "figures.md"
    file.write_text(document())
    with pytest.raises(SystemExit):
        run("changed", "--scale", "0.002", "--write", str(file))
    assert "full scale" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("speed")
    assert "no part is called speed" in capsys.readouterr().err
    assert file.read_text() == document()


def test_what_cannot_be_measured_here_is_left_out_and_said(run, capsys, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    run("kubernetes")
    assert f"kubernetes: NOT MEASURED, {VARIABLE} names no directory" in capsys.readouterr().out


_ROOT = Path(__file__).resolve().parents[1]
# Not those of the environments that benchmarks install for themselves.
_FILES = sorted(file for file in (_ROOT / "benchmarks").rglob("*.py") if "site-packages" not in file.parts)


@pytest.mark.parametrize("file", _FILES, ids=lambda file: str(file.relative_to(_ROOT)))
def test_every_name_that_a_benchmark_imports_exists(file: Path):
    """By reading the file: packages that only benchmarks need may be missing."""
    taken = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in taken:
        if (node.module or "").partition(".")[0] in ("placement", "tests"):
            exec(compile(ast.Module([node], []), str(file), "exec"), {})
