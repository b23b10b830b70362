"""Install what files of constraints pin into this environment, and tell in one line how far that is.

python constraints/install.py constraints/run.txt constraints/build.txt

What pip prints is kept in pip.log beside its bin; the end of it is shown if pip fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
# A machine without a network learns that in seconds.
_PINNED = ["--retries", "2", "--require-hashes"]
_PINS = re.compile(r"^[A-Za-z0-9._-]+==", re.MULTILINE)
_SEEN = re.compile(r".* (?P<package>\S+) \(from -r (?P<pin>\S+ \(line \d+\))\)")
_UNREACHABLE = "after connection broken by"
_PUBLIC = "https://pypi.org/simple"
_SHOWN_LINES = 15
# Users and passwords in addresses are not printed.
_USER = re.compile(r"//[^/]*@")


def main(files: list[str]) -> int:
    """Install, and return the exit code of pip."""
    count = sum(len(_PINS.findall(Path(file).read_text())) for file in files)
    command = [*_PIP, *_PINNED, *(part for file in files for part in ("--requirement", file))]
    lines: list[str] = []
    seen: set[str] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line)
            match = _SEEN.match(line)
            if match:
                seen.add(match["pin"])
                _tell(f"package {len(seen)} of {count}: {match['package'].rpartition('/')[2]}")
            elif line.startswith("Installing"):
                _tell(f"installing {len(seen)} packages")
    Path(sys.prefix, "pip.log").write_text("".join(lines))
    _tell("")
    if not pip.returncode:
        print(f"Installed the packages of {', '.join(files)}.", flush=True)
    elif any(_UNREACHABLE in line for line in lines):
        index = _USER.sub("//", os.environ.get("PIP_INDEX_URL", _PUBLIC))
        sys.exit(f"{index} cannot be reached: without a network, set PIP_INDEX_URL to a mirror of it.")
    else:
        sys.stderr.write("".join(lines[-_SHOWN_LINES:]))
    return pip.returncode


def _tell(text: str) -> None:
    """Write over the line of before; what is no terminal gets the end only."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
