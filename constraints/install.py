"""Install what files of constraints pin into an environment, and tell in one line how far that is.

python constraints/install.py .venv constraints/run.txt constraints/build.txt
python constraints/install.py .venv --checkout       this checkout as well, from where it is

uv installs where it is on PATH, pip otherwise; both check all hashes and use the index that pip is configured
with. What they print is kept in install.log in the environment; the end of it is shown if they fail.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CHECKOUT = "--checkout"
# A file without its hash is refused. The pins name all that is needed, so nothing is left to resolve.
_PINNED = ["--require-hashes", "--no-deps"]
# A machine without a network learns that in seconds. Modules are compiled when they are first used,
# which saves a third of the time.
_PIP = ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2", "--no-compile"]
# Of several indexes pip takes a file from any.
_UV = ["--index-strategy", "unsafe-best-match"]
# Settings of pip, and the variables by which uv takes them: all users of a machine can read arguments.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"),
}
# pip separates the values of a list by white space.
_SEPARATORS = {"extra-index-url": " ", "find-links": ",", "trusted-host": " "}
_PINS = re.compile(r"^[A-Za-z0-9._-]+==", re.MULTILINE)
_SEEN = re.compile(r".* (?P<package>\S+) \(from -r (?P<pin>\S+ \(line \d+\))\)")
_UNREACHABLE = ("after connection broken by", "error sending request for url")
_SHOWN_LINES = 15
_OFF = ("", "0", "false", "no", "off")
# Users and passwords in addresses are not printed.
_USER = re.compile(r"//[^/]*@")


def main(environment: str, *given: str) -> int:
    """Install, and return the exit code of the installer."""
    configured = _configuration_of_pip()
    if given == (_CHECKOUT,):
        return _run(
            environment, ["--no-deps", "--no-build-isolation", "--editable", str(_ROOT)], configured, 0
        )
    count = sum(len(_PINS.findall(Path(file).read_text())) for file in given)
    files = [part for file in given for part in ("--requirement", file)]
    code = _run(environment, [*_PINNED, *files], configured, count)
    if code == 0:
        print(f"Installed the packages of {', '.join(given)}.", flush=True)
    return code


def _run(environment: str, wanted: list[str], configured: dict[str, str], count: int) -> int:
    """Run the installer, with a line about each of `count` packages, and return its exit code."""
    uv, python = shutil.which("uv"), str(Path(environment, "bin", "python"))
    variables = dict(os.environ)
    if uv:
        variables |= _variables_of_uv(configured)
        command = [uv, "pip", "install", "--python", python, *_UV, *wanted]
        if configured.get("no-index", "").lower() not in _OFF:
            command.append("--no-index")
    else:
        command = [python, "-m", "pip", "install", *_PIP, *wanted]
    lines: list[str] = []
    seen: set[str] = set()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
    ) as installer:
        assert installer.stdout is not None
        for line in installer.stdout:
            lines.append(line)
            match = _SEEN.match(line)
            if match:
                seen.add(match["pin"])
                _tell(f"package {len(seen)} of {count}: {match['package'].rpartition('/')[2]}")
            elif line.startswith("Installing"):
                _tell(f"installing {len(seen)} packages")
    Path(environment, "install.log").write_text("".join(lines))
    _tell("")
    if installer.returncode and any(sign in line for line in lines for sign in _UNREACHABLE):
        index = _USER.sub("//", configured.get("index-url", "The package index"))
        sys.exit(f"{index} cannot be reached: without a network, set PIP_INDEX_URL to a mirror of it.")
    if installer.returncode:
        sys.stderr.write("".join(lines[-_SHOWN_LINES:]))
    return installer.returncode


def _configuration_of_pip() -> dict[str, str]:
    """Return how pip is configured, in its files and by variables, which win; only these without a pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    configured = {}
    for name in (*_VARIABLES, "no-index"):
        for written in (found.get(f"global.{name}"), found.get(f"install.{name}")):
            if written is not None:
                configured[name] = str(ast.literal_eval(written))
        variable = os.environ.get(f"PIP_{name.upper().replace('-', '_')}")
        if variable is not None:
            configured[name] = variable
    return configured


def _variables_of_uv(configured: dict[str, str]) -> dict[str, str]:
    """Return the variables with which uv looks where pip would, and connects as pip would."""
    found = {}
    for name, variables in _VARIABLES.items():
        value = configured.get(name, "")
        if name in _SEPARATORS:
            value = _SEPARATORS[name].join(value.split())
        if value:
            found |= dict.fromkeys(variables, value)
    return found


def _tell(text: str) -> None:
    """Write over the line of before; what is no terminal gets the end only."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
