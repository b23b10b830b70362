"""`placement man` writes a page for every command, with every option that its parser has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from placement.client.cli import Placement
from placement.client.parsers import parsers
from tests.commands import refusal, run


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("man") / "new" / "man1"
    assert run("man", str(directory)).returncode == 0
    return directory


def test_every_command_has_a_page_with_its_options(pages: Path):
    commands = list(parsers(Placement()))
    assert len(commands) > 30
    main = (pages / "placement.1").read_text().replace("\\-", "-")
    for command in commands:
        title = f"placement-{command.name.replace(' ', '-')}"
        assert f".BR {title} (1)\n{command.summary}" in main
        page = (pages / f"{title}.1").read_text().replace("\\-", "-")
        for name in [
            "--help",
            *(name for option in command.options for name in option.action.option_strings),
        ]:
            assert re.search(rf"\\fB.*{re.escape(name)}\b", page)
    assert len(list(pages.iterdir())) == len(commands) + 1


def test_troff_has_nothing_to_complain_about(pages: Path):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    files = [str(path) for path in sorted(pages.iterdir())]
    finished = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-z", *files], capture_output=True, text=True
    )
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_directory_that_cannot_be_written_is_one_line():
    assert refusal("man", "/dev/null/man1") == "/dev/null/man1: Not a directory"
