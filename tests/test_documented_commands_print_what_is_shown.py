"""Every console example of the README and in docs/ prints what is shown there, against the example clusters.

The first tutorial is followed over a restart. The others have clusters of their own, and tests of their own.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.client.cli import Catalog
from placement.server.settings import CONNECTION_VARIABLE
from tests import commands, tutorials
from tests.patience import eventually
from tests.probes import is_ready, probed
from tests.server import RunningServer, database_url, running_service
from tests.test_demonstration_answers_what_it_prints import run

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if "tutorial" not in page.name)]
FIRST_STEPS = (DOCS / "tutorial-first-steps.md").read_text()
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^\$ ((?:placement|curl) .*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# What is shown is what people see on a terminal of 80 columns.
_TERMINAL = {"COLUMNS": "80", "CLIFF_FIT_WIDTH": "1"}
_ADDRESS = "http://127.0.0.1:8778"


def examples() -> Iterator[tuple[str, str]]:
    """(command, what it prints)."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text()):
            yield from _EXAMPLE.findall(block)


def test_every_command_shown_is_tried():
    blocks = [block for page in PAGES for block in _BLOCK.findall(page.read_text())]
    shown = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert shown == [f"$ {command}" for command, _ in examples()]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with (
        database_url("sqlite", has_examples=True) as connection,
        running_service(connection, workers=1, arguments=["--demo"]) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv(CONNECTION_VARIABLE, connection)
        # What looks at the database from time to time has to have looked once.
        eventually(True, lambda: is_ready(running.url))
        eventually(True, lambda: "openstack_placement_resource_total" in probed(running.url, "/metrics")[1])
        yield running


@pytest.mark.parametrize(("command", "shown"), list(examples()), ids=lambda text: text[:60].strip())
def test_example(server: RunningServer, command: str, shown: str, tmp_path: Path) -> None:
    if command.startswith("curl"):
        assert run(command.replace(_ADDRESS, server.url), tmp_path).stdout == shown
        return
    arguments = shlex.split(command)[1:]
    if arguments[0] == "serve":
        printed = f"placement: {commands.refused_start(*arguments[1:])}\n"
    else:
        environment = {**_TERMINAL, CONNECTION_VARIABLE: os.environ[CONNECTION_VARIABLE]}
        printed = commands.run("--url", server.url, *arguments, merged=True, **environment).stdout
    assert printed == shown


def first_steps(folder: Path) -> Iterator[tuple[str, str]]:
    """Each command of the first tutorial with what it prints."""
    before, title, after = FIRST_STEPS.partition("## 6. Stop and start")
    with database_url("sqlite", has_examples=True) as connection:
        for part in (before, title + after):
            with running_service(connection, workers=1, arguments=["--demo"]) as running:
                address = {_ADDRESS: running.url}
                yield from tutorials.followed(part, folder, address, PLACEMENT_URL=running.url)


def test_the_first_steps_lead_where_they_say(tmp_path: Path) -> None:
    assert [*first_steps(tmp_path)] == tutorials.examples(FIRST_STEPS)


def test_every_command_is_documented() -> None:
    page = (DOCS / "command-line.md").read_text()
    for name, _ in Catalog():
        assert f"`placement {name}" in page
