"""The version of a build is that of its tag; builds without git or tags have the one that is written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from constraints.version import UNTAGGED, VARIABLE, version


@pytest.fixture(autouse=True)
def _no_version_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "--message", "one")
    return tmp_path


def test_without_tags_it_is_the_written_one(clone: Path):
    assert version(clone) == UNTAGGED


def test_without_git_it_is_the_written_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert version(tmp_path) == UNTAGGED
    monkeypatch.setenv("PATH", "")
    assert version(tmp_path) == UNTAGGED


def test_a_tag_is_the_version_and_commits_after_it_are_told(clone: Path):
    git(clone, "tag", "v1.2.3")
    git(clone, "tag", "other")
    assert version(clone) == "1.2.3"
    git(clone, "commit", "--allow-empty", "--message", "two")
    assert version(clone).startswith("1.2.3.post1+g")


def test_tags_of_a_project_around_it_say_nothing(clone: Path):
    git(clone, "tag", "v1.2.3")
    (clone / "unpacked").mkdir()
    assert version(clone / "unpacked") == UNTAGGED


def test_an_image_is_told_its_version(clone: Path, monkeypatch: pytest.MonkeyPatch):
    git(clone, "tag", "v1.2.3")
    monkeypatch.setenv(VARIABLE, "9.9")
    assert version(clone) == "9.9"
    program = Path(sys.modules["constraints.version"].__file__ or "")
    shown = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert shown.stdout == "9.9\n"
