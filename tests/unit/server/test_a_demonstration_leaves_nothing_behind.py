"""The folder of `placement demo`: a temporary one goes with the process that made it, a named one stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Forks leave the block as workers of the service do.
_MAKE = """
import os, signal, sys
from placement.server.demonstration_command import _folder
with _folder(sys.argv[1]) as folder:
    (folder / "kept").touch()
    if os.fork() == 0:
        sys.exit()
    os.wait()
    print(folder, (folder / "kept").exists())
    if sys.argv[2]:
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("by a signal", 128 + signal.SIGTERM)])
@pytest.mark.parametrize("named", ["", "mine/data"])
def test_only_a_named_folder_stays(tmp_path: Path, named: str, ending: str, code: int):
    command = [sys.executable, "-c", _MAKE, named and str(tmp_path / named), ending]
    made = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    folder, was_there = made.stdout.split()
    assert was_there == "True", made
    assert made.returncode == (-signal.SIGTERM if named and ending else code), made
    assert [path.name for path in tmp_path.iterdir()] == (["mine"] if named else [])
    assert Path(folder).exists() == bool(named)
