"""The version of this checkout, for the build: from its tag, else the one that is written here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

UNTAGGED = "0.1.0"
"""The version without git, in a clone without tags, and of an unpacked archive."""
VARIABLE = "PLACEMENT_VERSION"
_ROOT = Path(__file__).resolve().parents[1]
_DESCRIBED = re.compile(r"v(\d[\w.]*)-(\d+)-(g[0-9a-f]+)")


def version(root: Path = _ROOT) -> str:
    """Return the version, 1.2.0 at the tag v1.2.0 and 1.2.0.post3+g<commit> three commits later.

    The environment comes first: an image is built without the history.
    """
    return os.environ.get(VARIABLE) or _of_tag(root) or UNTAGGED


def _of_tag(root: Path) -> str | None:
    if _git(root, "rev-parse", "--show-toplevel") != str(root):
        # Not a clone of this project, though it may lie inside of another one.
        return None
    found = _DESCRIBED.fullmatch(_git(root, "describe", "--tags", "--long", "--match", "v[0-9]*"))
    if found is None:
        return None
    tag, commits, commit = found.groups()
    return tag if commits == "0" else f"{tag}.post{commits}+{commit}"


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints, nothing if it fails or is not installed."""
    try:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.stdout.write(f"{version()}\n")
