"""The set-up of an environment prints little, and in one line that there is no network."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.server import free_port

INSTALL = Path(__file__).resolve().parents[1] / "constraints" / "install.py"


def installed(directory: Path, requirement: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The end of a set-up of an environment of its own, from a file with this requirement."""
    file = directory / "pinned.txt"
    file.write_text(requirement)
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return subprocess.run(
        [str(directory / "venv" / "bin" / "python"), str(INSTALL), str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**kept, "PIP_CONFIG_FILE": os.devnull, **environment},
    )


def wheel(directory: Path) -> Path:
    """A wheel with nothing in it."""
    file = directory / "nothing-1.0-py3-none-any.whl"
    about = "nothing-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return file


def test_what_is_pinned_is_installed(tmp_path: Path):
    digest = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()
    pinned = f"nothing==1.0 --hash=sha256:{digest}\n"
    finished = installed(tmp_path, pinned, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    printed = f"Installed the packages of {tmp_path}/pinned.txt.\n"
    assert (finished.returncode, finished.stdout) == (0, printed), finished
    assert list(tmp_path.glob("venv/lib/*/site-packages/nothing-1.0.dist-info"))


def test_a_file_with_another_hash_is_refused_with_the_words_of_pip(tmp_path: Path):
    wheel(tmp_path)
    pinned = f"nothing==1.0 --hash=sha256:{'0' * 64}\n"
    finished = installed(tmp_path, pinned, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert finished.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in finished.stderr


def test_without_a_network_one_line_names_the_setting_for_a_mirror(tmp_path: Path):
    index = f"http://127.0.0.1:{free_port()}/simple"
    # What a mirror asks for, if it does, is printed nowhere.
    given = index.replace("//", "//user:password@")
    finished = installed(tmp_path, f"nothing==1.0 --hash=sha256:{'0' * 64}\n", PIP_INDEX_URL=given)
    assert finished.returncode == 1
    assert finished.stderr.splitlines() == [
        f"{index} cannot be reached: without a network, set PIP_INDEX_URL to a mirror of it."
    ]
