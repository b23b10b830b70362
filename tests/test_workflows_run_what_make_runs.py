"""Workflows, hooks and .ci/run have the steps of make, and workflows are bounded in rights and in time."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real_kubernetes import PROGRAMS, VARIABLE, programs

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
}
JOBS = {(file, name): job for file, each in WORKFLOWS.items() for name, job in each["jobs"].items()}
RULES = dict(re.findall(r"^([a-z-]+):[^\n]*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE))
CI_RUN = re.sub(r"^\s*#.*$", "", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_MAKE = re.compile(r"\bmake\s+([a-z-]+)")
_INSTALLED = re.compile(r"apt-get install (?:--\S+ )*([a-z-]+)")
_ACTION = re.compile(r"[\w-]+/[\w-]+@v\d+")


def commands(job: dict[str, Any]) -> Iterator[str]:
    """The commands of a job, in their order."""
    yield from (step["run"] for step in job["steps"] if "run" in step)


def unknown_targets(command: str) -> list[str]:
    """The targets that a command has make make and the Makefile does not have."""
    return [target for target in _MAKE.findall(command) if target not in RULES]


@pytest.mark.parametrize("job", JOBS.values(), ids=map("-".join, JOBS))
def test_jobs_make_targets_that_exist(job: dict[str, Any]):
    assert [target for command in commands(job) for target in unknown_targets(command)] == []


def test_a_target_that_does_not_exist_is_found():
    assert unknown_targets("make no-such-target && make check") == ["no-such-target"]


def test_one_job_has_every_step_of_ci_run():
    steps = list(commands(WORKFLOWS["test.yml"]["jobs"]["test"]))
    decisive, installed = _MAKE.findall(CI_RUN), _INSTALLED.findall(CI_RUN)
    assert decisive == ["test", "faults"]
    assert [step for step in steps if step in {f"make {each}" for each in decisive}] == [
        f"make {each}" for each in decisive
    ]
    assert set(installed) == {package for step in steps for package in _INSTALLED.findall(step)}


def test_the_second_part_runs_though_the_first_one_failed():
    (faults,) = [
        each for each in WORKFLOWS["test.yml"]["jobs"]["test"]["steps"] if each.get("run") == "make faults"
    ]
    assert faults["if"] == "${{ !cancelled() }}"


@pytest.mark.parametrize("job", JOBS.values(), ids=map("-".join, JOBS))
def test_jobs_end_and_have_no_rights_of_their_own(job: dict[str, Any]):
    assert 0 < job["timeout-minutes"] <= 120
    assert "permissions" not in job


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=list(WORKFLOWS))
def test_workflows_only_read_and_replace_their_former_run(workflow: dict[str, Any]):
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    # YAML reads the key `on` as true. Code of a stranger must not run with the rights of a maintainer.
    assert "pull_request_target" not in workflow[True]


@pytest.mark.parametrize("job", JOBS.values(), ids=map("-".join, JOBS))
def test_actions_are_named_by_their_major_version(job: dict[str, Any]):
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert used
    assert [each for each in used if not _ACTION.fullmatch(each)] == []
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert [each["with"]["persist-credentials"] for each in checkouts] == [False]


def test_unit_tests_run_from_the_oldest_python_on():
    job = WORKFLOWS["test.yml"]["jobs"]["check"]
    assert PROJECT["project"]["requires-python"] == f">={job['strategy']['matrix']['python'][0]}"
    assert "make check" in commands(job)


def test_hooks_run_the_commands_of_make():
    """A commit is held to the same as `make check`, less its tests, with the programs of the checkout."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {(hook["language"], hook["pass_filenames"]) for hook in repository["hooks"]} == {("system", False)}
    recipes = "".join(RULES[target] for target in ("lint", "types", "rooms"))
    made = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipes.splitlines()]
    assert [hook["entry"] for hook in repository["hooks"]] == made


def test_types_are_strict_everywhere():
    assert PROJECT["tool"]["mypy"]["strict"] is True
    loosening = [
        name
        for override in PROJECT["tool"]["mypy"].get("overrides", [])
        for name in override
        if name not in {"module", "ignore_missing_imports", "follow_imports"}
    ]
    assert loosening == []


_RELEASE = ("1.2.3", "3.4.5")
# Stands for curl: the last part of the address is a file of $SERVED, and the file after --output gets it.
_CURL = """#!/bin/sh
for each; do
    [ "$previous" = --output ] && output=$each
    previous=$each
done
echo "$each" >> "$SERVED/asked"
exec cp "$SERVED/${each##*/}" "$output"
"""


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with what a release has to download, under the names it has there."""
    folder, etcd = tmp_path / "served", "etcd-v3.4.5-linux-amd64"
    folder.mkdir()
    for name in PROGRAMS[1:]:
        text = f"#!/bin/sh\necho {name}\n".encode()
        (folder / name).write_bytes(text)
        (folder / f"{name}.sha256").write_text(hashlib.sha256(text).hexdigest())
    with tarfile.open(folder / f"{etcd}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{etcd}/etcd")
        member.size = len(b"etcd")
        archive.addfile(member, io.BytesIO(b"etcd"))
    digest = hashlib.sha256((folder / f"{etcd}.tar.gz").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  another.tar.gz\n{digest}  {etcd}.tar.gz\n")
    return folder


def filled(target: Path, served: Path) -> subprocess.CompletedProcess[str]:
    """The end of `.ci/kubernetes` with this folder, on a machine of which curl and uname are stand-ins."""
    bin_ = served.parent / "bin"
    bin_.mkdir(exist_ok=True)
    for name, text in {"curl": _CURL, "uname": "#!/bin/sh\necho x86_64\n"}.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    return subprocess.run(
        [str(ROOT / ".ci" / "kubernetes"), str(target), *_RELEASE],
        env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "SERVED": str(served)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_programs_of_a_kubernetes_are_where_tests_look(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "build" / "kubernetes"
    finished = filled(target, served)
    assert finished.returncode == 0, finished.stderr
    monkeypatch.setenv(VARIABLE, str(target))
    assert programs() == target
    assert {name for name in PROGRAMS if os.access(target / name, os.X_OK)} == set(PROGRAMS)
    asked = (served / "asked").read_text()
    assert "https://dl.k8s.io/v1.2.3/bin/linux/amd64/kubectl\n" in asked
    # Another run finds them there, and asks for nothing.
    assert filled(target, served).returncode == 0
    assert (served / "asked").read_text() == asked


@pytest.mark.parametrize("name", ["kube-apiserver", "etcd-v3.4.5-linux-amd64.tar.gz"])
def test_a_program_with_another_hash_leaves_no_folder(tmp_path: Path, served: Path, name: str):
    with (served / name).open("ab") as file:
        file.write(b"more")
    finished = filled(tmp_path / "kubernetes", served)
    assert finished.returncode != 0
    assert not (tmp_path / "kubernetes").exists()
