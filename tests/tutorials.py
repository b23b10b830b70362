"""Tutorials as a reader follows them: every block of a document, in one shell, in its order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_MARK = "#### an example begins or ends\n"
# What is shown is what a terminal of 80 columns shows.
_TERMINAL = {"COLUMNS": "80", "CLIFF_FIT_WIDTH": "1", "PYTHONUNBUFFERED": "1"}
_END = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"


def examples(document: str) -> list[tuple[str, str]]:
    """Return each command of the console blocks with what is shown under it."""
    return [each for language, text in _BLOCK.findall(document) for each in _found(language, text)]


def followed(
    document: str, folder: Path, replaced: Mapping[str, str], **environment: str
) -> list[tuple[str, str]]:
    """Run all blocks in this folder; return each command of the console blocks with what it prints.

    `replaced` has texts that are other ones here, such as addresses of servers.
    """
    script = _END + _replaced("".join(_as_script(document)), replaced)
    bin_folder = Path(sys.executable).parent
    given = {**os.environ, **_TERMINAL, "PYTHONPATH": str(ROOT), "CHECKOUT": str(ROOT), **environment}
    given["PATH"] = os.pathsep.join([environment.get("PATH", ""), str(bin_folder), os.environ["PATH"]])
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=PATIENCE_SECONDS)
    finally:
        # What the shell began and did not end.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    back = {here: text for text, here in replaced.items()}
    outputs = _replaced(printed, back).split(_MARK)[1::2]
    return [(command, output) for (command, _), output in zip(examples(document), outputs, strict=True)]


def _replaced(text: str, replaced: Mapping[str, str]) -> str:
    """Return the text with all replaced at once, so that nothing is replaced twice."""
    pattern = "|".join(map(re.escape, replaced))
    return re.sub(pattern, lambda match: replaced[match[0]], text)


def _as_script(document: str) -> Iterator[str]:
    for language, text in _BLOCK.findall(document):
        if language == "sh":
            yield text
        for command, _ in _found(language, text):
            yield f"echo '{_MARK.strip()}'\n{command}\necho '{_MARK.strip()}'\n"


def _found(language: str, text: str) -> list[tuple[str, str]]:
    return _EXAMPLE.findall(text) if language == "console" else []
