"""bash, zsh and fish complete commands, options and choices by what `placement completion` prints alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from placement.client.cli import Catalog

LINES = [
    (["no"], ["node"]),
    (["node", ""], ["delete", "import", "list", "show"]),
    (["--url", "http://x", "node", "sh"], ["show"]),
    (["node", "list", "-f", ""], ["csv", "json", "table", "value", "wide", "yaml"]),
    (["serve", "--au"], ["--auth"]),
    (["serve", "--auth", ""], ["keystone", "noauth2", "token"]),
    (["completion", ""], ["bash", "fish", "zsh"]),
    (["--deb"], ["--debug"]),
]
_BASH = """
source {script}
COMP_WORDS=(placement {words}); COMP_CWORD={at}; _shtab_placement 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Only a shell at a terminal completes; what it would offer is printed.
_ZSH = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "source {setup}; source {script}"
zpty -w -n inner '{line}'$'\\t'
zpty -r inner seen '*DONE*'
print -rl -- ${{${{(M)${{(f)seen}}:#offered:*}}#offered:}}
"""
_ZSH_SETUP = """
PS1=; autoload -Uz compinit; compinit -u -D
compadd() {
  local -a offered
  if [[ " $*" != *" -"[OAD]" "* ]]; then
    builtin compadd -A offered "$@"
    (( $#offered )) && print -rl -- "" offered:$^offered
  fi
  builtin compadd "$@"
}
comppostfuncs=(finish); finish() { print; print DONE; }
"""
_FISH = """
source {script}
complete -C '{line}' | string replace -r '\\t.*' ''; true
"""


def script_for(shell: str, directory: Path) -> Path:
    file = directory / f"placement.{shell}"
    command = [sys.executable, "-m", "placement.client", "completion", shell]
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return file


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def shell(request, tmp_path_factory) -> tuple[str, Path]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param, script_for(request.param, tmp_path_factory.mktemp("completion"))


def completed(shell: str, script: Path, words: list[str]) -> list[str]:
    """What the shell offers for the last of these words."""
    line = " ".join(["placement", *words])
    quoted = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        # No file of the system is read, so nothing of the package bash-completion is there.
        command = ["bash", "--norc", "-c", _BASH.format(script=script, words=quoted, at=len(words))]
    elif shell == "zsh":
        setup = script.with_name("setup.zsh")
        setup.write_text(_ZSH_SETUP)
        command = ["zsh", "-f", "-c", _ZSH.format(script=script, setup=setup, line=line)]
    else:
        command = ["fish", "--no-config", "-c", _FISH.format(script=script, line=line)]
    environment = {**os.environ, "HOME": str(script.parent)}
    finished = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=script.parent
    )
    return sorted(set(finished.stdout.split()))


@pytest.mark.parametrize(("words", "expected"), LINES, ids=lambda value: " ".join(value))
def test_words_are_completed(shell, words, expected):
    assert completed(*shell, words) == expected


def test_files_are_completed_where_there_is_nothing_to_choose_from(shell):
    name, script = shell
    assert completed(name, script, ["node", "import", "edge", "placement."]) == [script.name]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["node", "list", "ed"], ["edge"]),
        (["candidates", "--cluster", "cl"], ["cloud"]),
        (["node", "show", "edge", "edge-07"], ["edge-07"]),
    ],
)
def test_names_are_asked_of_the_service(shell, examples_url, monkeypatch, tmp_path, words, expected):
    command = tmp_path / "placement"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m placement.client "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    monkeypatch.setenv("PLACEMENT_URL", examples_url)
    assert completed(*shell, words) == expected


def test_every_command_has_its_options_in_every_script(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        text = script_for(shell, tmp_path).read_text().replace("_", " ")
        for name, _ in Catalog():
            assert f"placement {name}" in text or f"using {name}" in text
        assert "claim-patience" in text
