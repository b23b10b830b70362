"""`python -m tests.cases FILE` finds the module of the file's format, and reports and exits as promised."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import cases
from tests.cases import __main__ as command


def _outcomes(document: dict[str, Any], url: str | None) -> Iterator[tuple[str, str | None]]:
    for case in document["cases"]:
        yield case, f"refused by {url}" if case.startswith("bad") else None


@pytest.fixture
def fake_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more module, of the format `fake-cases/1`, besides one that is listed but does not exist."""
    name = "tests.cases.fake"
    module = ModuleType(name)
    module.__spec__ = cases.__spec__
    module.__dict__.update(FORMAT="fake-cases/1", run=_outcomes)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cases, "MODULES", ("granular", "nowhere", "fake"))


def _file(directory: Path, text: str) -> str:
    path = directory / "cases.json"
    path.write_text(text)
    return str(path)


def _fake(directory: Path, *case_ids: str) -> str:
    return _file(directory, json.dumps({"format": "fake-cases/1", "cases": case_ids}))


@pytest.mark.usefixtures("fake_format")
def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([_fake(tmp_path, "one", "two")]) == 0
    assert capsys.readouterr().out == "2/2\n"


@pytest.mark.usefixtures("fake_format")
def test_failures_are_listed_with_their_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([_fake(tmp_path, "bad-a", "good", "bad-b"), "--url", "http://host"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "bad-a: refused by http://host",
        "bad-b: refused by http://host",
        "1/3",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"format": "fake-cases/2", "cases": []}', "unknown format 'fake-cases/2'"),
        ('{"cases": []}', "not a case file"),
        ("[]", "not a case file"),
        ("{", "not JSON"),
    ],
)
@pytest.mark.usefixtures("fake_format")
def test_unusable_files_are_named_with_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    path = _file(tmp_path, text)
    assert command.main([path]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{path}: {complaint}")


def test_a_missing_file_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path / "absent.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_every_module_that_exists_has_its_own_format() -> None:
    formats = [module.FORMAT for module in cases.modules()]
    assert "granular-cases/1" in formats
    assert len(formats) == len(set(formats))
