"""Environments that have the wheel of this checkout, and the packages of one extra and no others.

`python -m tests.installations` makes them all for real, and tries what `make test` tries with links.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.patience import PATIENCE_SECONDS
from tests.probes import probed
from tests.server import await_answer, free_port

ROOT = Path(__file__).resolve().parents[1]
NO_EXTRA = ""
_TOOLS = {"test", "bench"}
_PINNED = ROOT / "constraints" / "extras.txt"
_OF_TESTS = ROOT / "constraints" / "test.txt"
_PIN = re.compile(r"^([a-z0-9-]+)==.*?(?=^\S)", re.MULTILINE | re.DOTALL)
_SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, {site!r})
{body}
"""
_CALL = "from {module} import {name}\nsys.exit({name}())"
# All modules but the ones that serve, or end, as they are imported.
IMPORT_ALL = """
import importlib, pathlib, placement
root = pathlib.Path(placement.__file__).parent
for file in sorted(root.rglob("*.py")):
    parts = file.relative_to(root.parent).with_suffix("").parts
    if parts[1] in ("wsgi", "migrations") or parts[-1] == "__main__":
        continue
    name = ".".join(parts).removesuffix(".__init__")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name)
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout without a network."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--no-index", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def described(wheel: Path) -> metadata.Distribution:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (about,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    return metadata.PathDistribution(zipfile.Path(wheel, f"{about}/"))


def extras_of(wheel: Path) -> list[str]:
    """The extras that are for users of the service, with none first."""
    found = described(wheel).metadata.get_all("Provides-Extra") or []
    return [NO_EXTRA, *sorted({*found} - _TOOLS)]


def closure(distribution: metadata.Distribution, extra: str) -> set[str]:
    """The packages that a distribution with the extra needs, by what the installed ones say."""
    found: dict[str, frozenset[str]] = {}
    todo = [(distribution, frozenset({extra}))]
    while todo:
        package, extras = todo.pop()
        for text in package.requires or ():
            needed = Requirement(text)
            if needed.marker and not any(needed.marker.evaluate({"extra": each}) for each in ("", *extras)):
                continue
            name, its_extras = _canonical(needed.name), frozenset(needed.extras)
            if name not in found or its_extras - found[name]:
                found[name] = found.get(name, frozenset()) | its_extras
                todo.append((metadata.distribution(name), found[name]))
    return set(found)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Installation:
    """An environment in a folder, with the commands of the wheel in `bin`."""

    def __init__(self, folder: Path, extra: str) -> None:
        self.folder, self.extra = folder, extra
        self.bin = folder / "bin"
        self.commands: list[str] = []

    def run(self, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the wheel; only what is given of the environment configures it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "PLACEMENT_"))}
        return subprocess.run(
            [str(self.bin / name), *arguments],
            cwd=self.folder,
            env={**kept, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run code in the environment."""
        return self.run("python", "-c", code)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """`placement serve --demo` at this address, ended after the block."""
        port = free_port()
        log = self.folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(self.bin / "placement"), "serve", "--demo", "--port", str(port), "--workers", "1"],
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            at = f"http://127.0.0.1:{port}"
            await_answer(at, lambda: process.poll() is not None)
            yield at
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _extracted(wheel: Path) -> Path:
    """The files of a wheel, compiled once for all environments that have links."""
    folder = wheel.parent / "extracted"
    if not folder.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder


def linked(folder: Path, wheel: Path, extra: str) -> Installation:
    """Make an environment of links to what is installed here; all other packages are out of its sight."""
    made, site = Installation(folder, extra), folder / "site"
    made.bin.mkdir(parents=True)
    shutil.copytree(_extracted(wheel), site, symlinks=True)
    for package in closure(described(wheel), extra):
        for name in {file.parts[0] for file in metadata.distribution(package).files or ()}:
            target = Path(str(metadata.distribution(package).locate_file(name)))
            if name not in ("..", "__pycache__") and not (site / name).exists():
                (site / name).symlink_to(target)
    entries = ConfigParser()
    entries.read_string(described(wheel).read_text("entry_points.txt") or "")
    bodies = {
        name: _CALL.format(module=place.partition(":")[0], name=place.partition(":")[2])
        for name, place in entries["console_scripts"].items()
    }
    for script in site.glob("*.data/scripts/*"):
        bodies[script.name] = script.read_text()
    made.commands = sorted(bodies)
    bodies["python"] = "exec(sys.argv[2])"
    for name, body in bodies.items():
        file = made.bin / name
        file.write_text(_SCRIPT.format(python=sys.executable, site=str(site), body=body))
        file.chmod(0o755)
    return made


def installed(folder: Path, wheel: Path, extra: str) -> Installation:
    """Make a clean environment of what is pinned for the extra, with hashes. Raises Unreachable."""
    made = Installation(folder, extra)
    # The pip that is here installs there, and leaves compiling to the modules that are used: half the time.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pins = folder / "pinned.txt"
    pins.write_text("".join(_pinned(closure(described(wheel), extra))))
    pip = [sys.executable, "-m", "pip", "--python", str(made.bin / "python"), "install", "--no-compile"]
    pip += ["--quiet", "--disable-pip-version-check", "--retries", "2"]
    _checked([*pip, "--require-hashes", "--requirement", str(pins)])
    _checked([*pip, "--no-index", "--no-deps", str(wheel)])
    with zipfile.ZipFile(wheel) as archive:
        scripts = [Path(name).name for name in archive.namelist() if ".data/scripts/" in name]
    entries = ConfigParser()
    entries.read_string(described(wheel).read_text("entry_points.txt") or "")
    made.commands = sorted([*entries["console_scripts"], *scripts])
    return made


class Unreachable(Exception):
    """A package index that gives no answer."""


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "after connection broken by" in done.stderr and done.returncode:
        raise Unreachable(done.stderr)
    assert done.returncode == 0, done.stderr


def _pinned(packages: Iterable[str]) -> Iterator[str]:
    """The lines of the constraints about these packages; extras that these lack are pinned for tests."""
    wanted = {*packages}
    for file in (_PINNED, _OF_TESTS):
        for pin in _PIN.finditer(file.read_text() + "end"):
            if pin[1] in wanted:
                wanted.remove(pin[1])
                yield pin[0]


def try_commands(made: Installation) -> None:
    """Every command shows its help, and every module finds what it imports. Raises AssertionError."""
    assert {"placement", "placement-api", "placement-manage", "placement-status"} <= {*made.commands}
    for name in made.commands:
        shown = made.run(name, "--help")
        assert (shown.returncode, "usage" in shown.stdout.lower()) == (0, True), (name, shown)
    missing = made.python(IMPORT_ALL)
    assert (missing.returncode, missing.stdout) == (0, ""), missing


def try_service(made: Installation) -> None:
    """A demonstration serves, and commands about it answer. Raises AssertionError."""
    with made.serving() as at:
        listed = made.run("placement", "cluster", "list", "-f", "value", "-c", "name", PLACEMENT_URL=at)
        assert (listed.returncode, listed.stdout.split()) == (0, ["batch", "cloud", "edge"]), listed
        status, text = probed(at, "/docs")
        assert status == (200 if made.extra == "docs" else 404), text
        assert ("extra `docs`" in text) == (made.extra != "docs")
    there = {"OS_PLACEMENT_DATABASE__CONNECTION": "sqlite:///var/placement.sqlite"}
    for command in (("placement-manage", "db", "version"), ("placement-status", "upgrade", "check")):
        done = made.run(*command, **there, OS_API__AUTH_STRATEGY="noauth2")
        assert done.returncode == 0, (command, done)


# What each extra is for: a command that says to install the extra where it is missing.
_IMPORT = "[placement_database]\nconnection = mysql+pymysql://user:password@127.0.0.1:1/placement\n"
_KEYSTONE = """[api]
auth_strategy = keystone
[placement_database]
connection = sqlite://
[keystone_authtoken]
auth_url = http://127.0.0.1:1/v3
auth_type = password
memcached_servers = 127.0.0.1:1
memcache_security_strategy = ENCRYPT
memcache_secret_key = a-secret-of-tests
"""


def says_to_install(made: Installation, extra: str) -> bool:
    """Whether a command that needs the extra says that it is missing; the one for `docs` is a page."""
    (made.folder / "incumbent.conf").write_text(_IMPORT)
    (made.folder / "placement.conf").write_text(_KEYSTONE)
    if extra == "openstackclient":
        done = made.python("from openstackclient.shell import main; main(['placement', 'status', '--help'])")
        return "No module named 'openstackclient'" in done.stderr
    if extra == "keystone":
        done = made.run("placement", "config", "check", "--config-file", "placement.conf")
    elif extra == "kubernetes":
        followed = ("--cluster", "edge", "--kubeconfig", "none", "--once")
        done = made.run("placement", "sync", "kubernetes", *followed)
    else:
        done = made.run("placement", "import", "--dry-run", "incumbent.conf", "--database", "sqlite:///x")
    assert done.stdout + done.stderr, done
    assert "Traceback" not in done.stderr, done
    return f"extra `{extra}`" in done.stdout + done.stderr


def try_extras(made: Installation, extras: Iterable[str]) -> None:
    """What the extra is for works, and what the others are for is named. Raises AssertionError."""
    for extra in {*extras} - {NO_EXTRA, "docs"}:
        assert says_to_install(made, extra) == (extra != made.extra), (made.extra, extra)


def main() -> int:
    """Try every extra in a clean environment of its own."""
    folder = Path(tempfile.mkdtemp(prefix="placement-installs-"))
    try:
        wheel = build_wheel(folder)
        extras = extras_of(wheel)
        for extra in extras:
            made = installed(folder / f"environment-{extra}", wheel, extra)
            try_commands(made)
            try_service(made)
            try_extras(made, extras)
            print(
                f"{wheel.name}[{extra}]: {len(made.commands)} commands, a service, and what it is for work."
            )
            shutil.rmtree(made.folder)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
