"""The synchronization loads nothing of the service; a service that may bind has loaded the client."""

import subprocess
import sys
from pathlib import Path

from tests.api_server import write_kubeconfig

_SYNCHRONIZATION = """
import importlib, pkgutil, sys
import placement.sync.command
import placement.sync as room
for module in pkgutil.iter_modules(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
    print(module.name)
print(*sys.modules, sep="\\n")
"""
_FIRST_BIND = """
import sys
from placement.server.binders import KubeconfigBinders

def of_the_client():
    return {name for name in sys.modules if name.partition(".")[0] == "kubernetes"}

assert not of_the_client()
binders = KubeconfigBinders(sys.argv[1])
before = of_the_client()
binders.of("edge")
print(*sorted(of_the_client() - before))
"""


def run(program: str, *arguments: object) -> set[str]:
    """What a process of its own prints, where nothing else has loaded anything."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_no_module_of_it_loads_columns_the_database_or_the_application():
    loaded = run(_SYNCHRONIZATION)
    assert "placement.sync.synchronization" in loaded
    assert loaded.isdisjoint({"numpy", "sqlalchemy", "alembic", "flask", "placement.engine.forest"})


def test_the_first_bind_waits_for_no_import(tmp_path: Path):
    """That takes most of a second."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", ("edge", "http://127.0.0.1:1"))
    assert run(_FIRST_BIND, kubeconfig) == set()
