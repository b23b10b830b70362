"""The image and the units: what the Containerfile copies is enough, and systemd understands the units."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from keystonemiddleware.opts import list_auth_token_opts

from placement import DISTRIBUTION
from placement.server import settings
from tests.installations import closure

ROOT = Path(__file__).resolve().parents[1]
_MAKEFILE = (ROOT / "Makefile").read_text()
_CONTAINERFILE = (ROOT / "Containerfile").read_text()
_DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_UNITS = sorted((ROOT / "etc" / "systemd").glob("*.service"))
_VERIFIER = shutil.which("systemd-analyze")


def builder() -> list[str] | None:
    """A program that can build and run images here and has what they begin with, None where none has."""
    (base,) = set(re.findall(r"^FROM (\S+)", _CONTAINERFILE, re.M))
    for name in ("podman", "docker"):
        program = shutil.which(name)
        if (
            program
            and not subprocess.run([program, "pull", base], capture_output=True, check=False).returncode
        ):
            return [program, "build", "-f", "Containerfile"]
    return None


def test_what_is_copied_is_enough_for_a_wheel(tmp_path: Path):
    checkout, wheels = tmp_path / "src", tmp_path / "wheels"
    checkout.mkdir()
    copied = [line.split()[1:] for line in _CONTAINERFILE.splitlines() if line.startswith("COPY")]
    for *sources, target in copied:
        for source in sources:
            if source.startswith("-") or source.startswith("/"):
                continue
            assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, checkout / target)
            else:
                (checkout / target).mkdir(exist_ok=True)
                shutil.copy(ROOT / source, checkout / target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--no-index", "--wheel-dir", str(wheels), str(checkout)], check=True)
    (wheel,) = wheels.iterdir()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"placement/migrations/env.py", "placement/examples/pod.yaml", "placement/__init__.py"} <= names


def test_the_image_is_for_nobody_in_particular_and_takes_known_files_only():
    stages = _CONTAINERFILE.split("\nFROM ")
    assert len(stages) == 3
    assert "USER 10001:10001" in stages[-1]
    assert "--require-hashes --requirement constraints/extras.txt" in _CONTAINERFILE
    assert "pip" not in stages[-1]


def pins(name: str) -> dict[str, str]:
    """What a file of constraints pins: the lines of each package, with hashes."""
    text = (ROOT / "constraints" / name).read_text()
    return {found[1]: found[0] for found in re.finditer(r"^([a-z0-9-]+)==(?:.*\\\n)*", text, re.M)}


def test_what_builds_is_not_installed_beside_what_runs():
    tools = {"editables", "hatchling", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
    assert tools <= pins("build.txt").keys()
    assert not tools & pins("run.txt").keys() | tools & pins("extras.txt").keys()


def test_what_builds_is_pinned_beside_the_extras():
    given = (ROOT / "constraints" / "build.txt").read_text()
    (constraint,) = re.findall(
        r"^\t\$\(COMPILE\).* --constraint (\S+) --output-file constraints/build.txt$", _MAKEFILE, re.M
    )
    assert set(re.findall(r"-c (\S+)", given)) == {constraint}


def test_the_demonstration_has_what_it_needs_and_extras_the_same_and_theirs():
    demonstration, all_extras = pins("run.txt"), pins("extras.txt")
    assert demonstration.items() <= all_extras.items()
    of_extras = {"keystonemiddleware", "kubernetes", "pymysql", "python-memcached", "cryptography"}
    assert of_extras <= all_extras.keys() - demonstration.keys()
    this = metadata.distribution(DISTRIBUTION)
    assert closure(this, "docs") - demonstration.keys() == set()
    for extra in ("docs", "keystone", "kubernetes", "mysql"):
        assert closure(this, extra) - all_extras.keys() == set()


@pytest.mark.parametrize("page", _DOCUMENTS, ids=lambda page: page.name)
def test_documents_install_the_extras_that_they_need_in_a_checkout(page: Path):
    text = page.read_text()
    blocks = "".join(re.findall(r"^```.*?^```$", text, re.M | re.S))
    needs = "make .venv/.run" in blocks and re.search("mysql|keystone", text, re.I)
    if needs or "placement sync" in blocks or "auth_strategy = keystone" in blocks:
        assert "constraints/extras.txt" in blocks
    # It lacks the extras, so it cures no import that fails.
    assert "constraints/run.txt" not in text


def test_the_image_is_built_and_runs():
    command = builder()
    if command is None:
        pytest.skip("NOT RUN: neither podman nor docker can build here")
    subprocess.run([*command, "-t", "placement:test", "."], cwd=ROOT, check=True)
    shown = subprocess.run(
        [command[0], "run", "--rm", "--read-only", "--tmpfs", "/tmp", "placement:test", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("placement ")


def test_the_configuration_of_the_walk_through_keystone_is_understood(tmp_path: Path):
    page = (ROOT / "docs" / "deploying.md").read_text()
    _, written = re.findall(r"cat > /etc/placement/placement.conf <<END\n(.*?)^END$", page, re.M | re.S)
    file = tmp_path / "placement.conf"
    file.write_text(written)
    loaded = settings.load([str(file)])
    assert loaded.api.auth_strategy == "keystone"
    for group, options in list_auth_token_opts():
        loaded.register_opts(options, group=group)
    assert loaded.keystone_authtoken.memcached_servers == ["localhost:11211"]


@pytest.mark.skipif(not _VERIFIER, reason="NOT RUN: no systemd-analyze is installed")
@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path):
    # Of templates an instance is looked at, and programs have to be there.
    copy = tmp_path / unit.name.replace("@", "@edge")
    copy.write_text(unit.read_text().replace("/opt/placement/bin/placement", sys.executable))
    finished = subprocess.run(
        [str(_VERIFIER), "verify", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    said = [line for line in finished.stderr.splitlines() if unit.name.partition(".")[0] in line]
    assert (finished.returncode, said) == (0, []), finished.stderr


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.name)
def test_the_unit_starts_a_command_that_there_is(unit: Path):
    starts = re.findall(r"^ExecStart(?:Pre)?=/opt/placement/bin/placement (.+)$", unit.read_text(), re.M)
    assert starts
    for start in starts:
        options = re.findall(r"--[a-z-]+", start)
        words = start.split(" --")[0].split()
        command = [sys.executable, "-m", "placement.client", *words, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert [option for option in options if option not in shown] == []
