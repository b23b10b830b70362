"""The set-up of an environment prints little, and in one line that there is no network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.server import free_port

INSTALL = Path(__file__).resolve().parents[1] / "constraints" / "install.py"


UV = shutil.which("uv")
# A uv that prints its settings, and in its last line what it is asked for.
STAND_IN = """#!/bin/sh
env | grep -E '^(UV_|SSL_CERT_FILE=|SSL_CLIENT_CERT=|HTTPS?_PROXY=|https?_proxy=)'
echo "$@"
"""
with_each = pytest.mark.parametrize(
    "uv", [None, pytest.param(UV, marks=pytest.mark.skipif(UV is None, reason="NOT RUN: no uv is on PATH"))]
)


def installed(
    directory: Path, requirement: str, uv: Path | str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The end of a set-up of an environment of its own, from a file with this requirement."""
    file = directory / "pinned.txt"
    file.write_text(requirement)
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "UV_"))
    }
    programs = directory / "programs"
    programs.mkdir()
    if uv is not None:
        (programs / "uv").symlink_to(uv)
    return subprocess.run(
        [sys.executable, str(INSTALL), str(directory / "venv"), str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**kept, "PATH": f"{programs}:/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull, **environment},
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


@with_each
def test_what_is_pinned_is_installed(tmp_path: Path, uv: str | None):
    digest = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()
    pinned = f"nothing==1.0 --hash=sha256:{digest}\n"
    finished = installed(tmp_path, pinned, uv, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    printed = f"Installed the packages of {tmp_path}/pinned.txt.\n"
    assert (finished.returncode, finished.stdout) == (0, printed), finished
    assert list(tmp_path.glob("venv/lib/*/site-packages/nothing-1.0.dist-info"))


@with_each
def test_a_file_with_another_hash_is_refused_with_the_words_of_the_installer(tmp_path: Path, uv: str | None):
    wheel(tmp_path)
    pinned = f"nothing==1.0 --hash=sha256:{'0' * 64}\n"
    finished = installed(tmp_path, pinned, uv, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert finished.returncode == 1
    words = "Hash mismatch for `nothing==1.0`" if uv else "THESE PACKAGES DO NOT MATCH THE HASHES"
    assert words in finished.stderr
    assert not list(tmp_path.glob("venv/lib/*/site-packages/nothing-1.0.dist-info"))


@with_each
def test_without_a_network_one_line_names_the_setting_for_a_mirror(tmp_path: Path, uv: str | None):
    index = f"http://127.0.0.1:{free_port()}/simple"
    # What a mirror asks for, if it does, is printed nowhere.
    given = index.replace("//", "//user:password@")
    finished = installed(tmp_path, f"nothing==1.0 --hash=sha256:{'0' * 64}\n", uv, PIP_INDEX_URL=given)
    assert finished.returncode == 1
    assert finished.stderr.splitlines() == [
        f"{index} cannot be reached: without a network, set PIP_INDEX_URL to a mirror of it."
    ]


def test_uv_checks_hashes_and_looks_where_pip_would(tmp_path: Path):
    stand_in, configuration = tmp_path / "stand-in", tmp_path / "pip.conf"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    configuration.write_text(
        "[global]\nindex-url = http://one/simple\ncert = /authority.pem\ntrusted-host = one\n"
        "client-cert = /own key.pem\nproxy = http://me:secret@proxy:3128\n"
        "[install]\nindex-url = http://me:secret@two/simple\nextra-index-url = http://three/simple\n  http://four/simple\n"
    )
    asked = installed(
        tmp_path,
        "",
        stand_in,
        PIP_CONFIG_FILE=str(configuration),
        PIP_FIND_LINKS="/wheels /more",
        PIP_NO_INDEX="0",
    )
    assert asked.returncode == 0, asked
    *settings, arguments = (tmp_path / "venv" / "install.log").read_text().splitlines()
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    assert dict(line.split("=", 1) for line in settings) == {
        "UV_DEFAULT_INDEX": "http://me:secret@two/simple",
        "UV_INDEX": "http://three/simple http://four/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "one",
        "SSL_CERT_FILE": "/authority.pem",
        "SSL_CLIENT_CERT": "/own key.pem",
        **dict.fromkeys(proxies, "http://me:secret@proxy:3128"),
    }
    # All users of a machine can read arguments.
    assert "secret" not in arguments
    words = arguments.split()
    assert words[:4] == ["pip", "install", "--python", str(tmp_path / "venv" / "bin" / "python")]
    assert {"--require-hashes", "--no-deps"} <= {*words}
    assert "--no-index" not in words
