"""With OpenStack Placement itself: filled, imported, asked the same, exported and started again.

It runs where `python -m benchmarks.moving` has installed the incumbent before, in an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "benchmarks" / ".incumbent" / "venv" / "bin" / "placement-manage"


@pytest.mark.skipif(
    not INSTALLED.exists(), reason="NOT RUN: benchmarks/.incumbent has no OpenStack Placement"
)
def test_there_and_back():
    command = [sys.executable, "-m", "benchmarks.moving", "--database", "sqlite", "--into", "sqlite"]
    finished = subprocess.run(
        [*command, "--data", "flat:5", "numa:2", "--queries", "40"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.count("40 queries, 0 answers differ") == 3
