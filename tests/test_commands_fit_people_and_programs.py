"""People see what fits their terminal, in colour; programs get everything, and an exit status that tells."""

from __future__ import annotations

import fcntl
import json
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from placement.client import cli
from placement.server.demonstration import examples
from tests.commands import run

POD = examples() / "pod.yaml"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def on_terminal(examples_url: str, width: int, *arguments: str, **variables: str) -> str:
    """What a person sees on a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with open(slave, "w", encoding="utf-8") as terminal, ThreadPoolExecutor(1) as reader:
        seen = reader.submit(_read, master)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("COLUMNS", "NO_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm", "PAGER": "cat", **variables}.items():
                patch.setenv(name, value)
            for name in ("stdout", "stderr", "__stdout__"):
                patch.setattr(sys, name, terminal)
            with suppress(SystemExit):
                cli.main(["--url", examples_url, *arguments])
            cli.Placement.LOG.handlers.clear()
        terminal.close()
        return seen.result().decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    """All that is written there until it is closed."""
    seen = b""
    # An error is how it ends on Linux when nobody can write to it any more.
    with open(master, "rb", buffering=0) as terminal, suppress(OSError):
        while part := terminal.read(65536):
            seen += part
    return seen


@pytest.fixture
def piped(examples_url: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """What a program gets of the command."""
    return lambda *arguments: run("--url", examples_url, *arguments)


@pytest.mark.parametrize(
    ("width", "command"),
    [
        (60, ["cluster", "list"]),
        (80, ["allocation", "list"]),
        (80, ["candidates", "resources=PCPU:2"]),
        (200, ["candidates", "resources=PCPU:2", "order_by=pack"]),
    ],
    ids=str,
)
def test_lines_fit_the_terminal(examples_url, width: int, command: list[str]):
    shown = on_terminal(examples_url, width, *command)
    lines = [line for line in shown.splitlines() if line.startswith(("|", "+", " "))]
    assert lines
    assert max(map(len, lines)) <= width


def test_an_allocation_is_told_in_few_lines_with_whole_names(examples_url, piped):
    shown = on_terminal(examples_url, 80, "allocation", "list", "--cluster", "edge", "--limit", "1")
    (consumer,) = UUID.findall(shown)
    cores = [
        row["provider"] for row in json.loads(piped("allocation", "show", consumer, "-f", "json").stdout)
    ]
    assert f"   {cores[0].partition('/core-')[0]}\n" in shown
    assert re.search(r"/core-\d+-\[[\d,-]+\]\n      PCPU=\d each\n", shown)
    assert len(shown.splitlines()) < len(cores)


def test_people_see_the_first_and_programs_all(piped):
    every = {row["consumer"] for row in json.loads(piped("allocation", "list", "-f", "json").stdout)}
    assert len(every) > 20
    seen = piped("allocation", "list").stdout
    assert set(UUID.findall(seen)) < every
    assert len(UUID.findall(seen)) == 20
    assert seen.splitlines()[-1] == f"... {len(every) - 20} more; --limit N shows more"
    seen = piped("candidates", "resources=PCPU:2")
    every = json.loads(piped("candidates", "resources=PCPU:2", "-f", "json").stdout)
    assert seen.stdout.splitlines()[-1] == f"... {len(every) - 10} more; --limit N shows more"
    assert len(seen.stdout.splitlines()) == 10 + 4 + 1
    for way in (["limit=12"], ["--limit", "12"]):
        limited = piped("candidates", "resources=PCPU:2", *way)
        assert len(limited.stdout.splitlines()) == 12 + 4
    flavor = ["flavor", "candidates", "--vcpus", "2", "--ram", "64", "--property", "hw:cpu_policy=dedicated"]
    assert "... at least 1000 more; --limit N shows more" in piped(*flavor).stdout or re.search(
        r"^\.\.\. \d+ more; --limit N shows more$", piped(*flavor).stdout, re.MULTILINE
    )


def test_columns_of_what_is_told_in_lines_are_a_table(piped):
    chosen = piped("allocation", "list", "--limit", "2", "-c", "consumer", "-c", "amounts").stdout
    assert chosen.splitlines()[1].split() == ["|", "Consumer", "|", "Amounts", "|"]
    wide = piped("allocation", "list", "--limit", "1", "--wide").stdout
    assert "Dedicated CPUs" in wide.splitlines()[1]


def test_refusing_nodes_are_grouped_by_reason_with_the_amounts_they_lack(piped, tmp_path: Path):
    manifest = yaml.safe_load(POD.read_text())
    for amounts in manifest["spec"]["containers"][0]["resources"].values():
        amounts["cpu"] = "48"
    huge = tmp_path / "huge.yaml"
    huge.write_text(yaml.safe_dump(manifest))
    shown = piped("pod", "preview", "edge", str(huge))
    assert shown.returncode == 1
    assert len(json.loads(piped("pod", "preview", "edge", str(huge), "-f", "json").stdout)) == 8
    assert shown.stdout.count("Insufficient cpu ") == 1
    spread = "lacks 18 CPUs: it has 30 cores with a free CPU, and SpreadByPCPUs takes one CPU of each"
    assert "(cpu fits on NUMA nodes 0+1; " in shown.stdout
    assert " edge/edge-01 lacks 8 CPUs: it has 40 free " in shown.stdout
    assert f" edge/edge-06 {spread} " in shown.stdout
    refused = piped("pod", "create", "edge", str(huge))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"edge/edge-06 {spread}" in refused.stderr
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    huge.write_text(yaml.safe_dump(manifest))
    assert piped("pod", "preview", "edge", str(huge)).stdout.count(" affinity/selector ") == 1


def test_what_fits_nowhere_ends_with_1(piped):
    flavor, query = ["--vcpus", "9999", "--ram", "1"], ["resources=PCPU:64"]
    for command in (
        *(["candidates", *query], ["explain", *query], ["claim", *query]),
        *(["flavor", "candidates", *flavor], ["flavor", "explain", *flavor]),
    ):
        assert piped(*command, "-f", "json").returncode == 1, command


def test_colour_is_for_terminals_where_nobody_objects(examples_url, piped):
    drawing = ("node", "show", "edge", "edge-01")
    assert "\033[32m█" in on_terminal(examples_url, 80, *drawing)
    assert "\033" not in on_terminal(examples_url, 80, *drawing, NO_COLOR="1")
    assert "\033" not in on_terminal(examples_url, 80, *drawing, TERM="dumb")
    assert "\033" not in piped(*drawing).stdout
    assert "\033[31mplacement:\033[0m " in on_terminal(examples_url, 80, "tree", "nobody")
    assert "\033[31mFits nowhere" in on_terminal(examples_url, 80, "explain", "resources=PCPU:64")
    for command in ([], ["--help"], ["help"], ["node", "list", "--help"]):
        assert "\033" not in on_terminal(examples_url, 80, *command, NO_COLOR="1")
