"""The tutorial for Kubernetes, as a reader follows it, with the newest servers that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tutorials
from tests.real_kubernetes import VARIABLE, programs, releases, unpack
from tests.server import free_port

TUTORIAL = (tutorials.ROOT / "docs" / "tutorial-kubernetes.md").read_text()
_PORTS = ("2379", "2380", "6443", "8778", "10259")


def followed(folder: Path) -> list[tuple[str, str]]:
    """Follow the tutorial in this folder; return its commands with what they print."""
    source, home = programs(), folder / "programs"
    assert source is not None
    home.mkdir()
    # kubectl is in the folder itself, servers of newer releases are below it.
    for each in (source, releases()[-1]):
        unpack(each, home)
    work = folder / "work"
    work.mkdir()
    ports = {port: str(free_port()) for port in _PORTS}
    outside = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return tutorials.followed(TUTORIAL, work, ports, PATH=str(home), **outside)


@pytest.mark.skipif(programs() is None, reason=f"NOT RUN: {VARIABLE} names no folder with the programs")
def test_every_block_prints_what_is_shown(tmp_path: Path):
    assert followed(tmp_path) == tutorials.examples(TUTORIAL)
