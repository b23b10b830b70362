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
    (["node", "list", "-f", ""], ["csv", "json", "table", "value", "yaml"]),
    (["serve", "--au"], ["--auth"]),
    (["serve", "--auth", ""], ["keystone", "noauth2", "token"]),
    (["completion", ""], ["bash", "fish", "zsh"]),
    (["--deb"], ["--debug"]),
]
_BASH = """
source {script}
COMP_WORDS=(placement {words}); COMP_CWORD={at}; _placement
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_ZSH = """
autoload -Uz compinit; compinit -u -D
source {script}
compadd() {{ shift; for word in "$@"; do [[ $word == "${{words[CURRENT]}}"* ]] && print -r -- "$word"; done }}
words=(placement {words}); CURRENT={at}
_placement; true
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
    quoted = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        # No file of the system is read, so nothing of the package bash-completion is there.
        command = ["bash", "--norc", "-c", _BASH.format(script=script, words=quoted, at=len(words))]
    elif shell == "zsh":
        command = ["zsh", "-f", "-c", _ZSH.format(script=script, words=quoted, at=len(words) + 1)]
    else:
        line = " ".join(["placement", *words])
        command = ["fish", "--no-config", "-c", _FISH.format(script=script, line=line)]
    environment = {**os.environ, "HOME": str(script.parent)}
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return sorted(set(finished.stdout.split()))


@pytest.mark.parametrize(("words", "expected"), LINES, ids=lambda value: " ".join(value))
def test_words_are_completed(shell, words, expected):
    assert completed(*shell, words) == expected


def test_files_are_completed_where_there_is_nothing_to_choose_from(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    script = script_for("bash", tmp_path)
    assert completed("bash", script, ["node", "import", "edge", ""]) == []
    assert "complete -o default -F _placement placement" in script.read_text()


def test_every_command_has_its_options_in_every_script(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        text = script_for(shell, tmp_path).read_text()
        for name, _ in Catalog():
            assert name in text
        assert "claim-patience" in text
