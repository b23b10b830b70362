"""The synchronization asks the service over HTTP: it loads nothing with which the service does its work."""

import subprocess
import sys

# In a process of its own, where nobody else has loaded anything.
_LOADED = """
import importlib, pkgutil, sys
import placement.sync.command
import placement.sync as room
for module in pkgutil.iter_modules(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
    print(module.name)
print(*sys.modules, sep="\\n")
"""


def test_no_module_of_it_loads_columns_the_database_or_the_application():
    listed = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    loaded = set(listed.stdout.split())
    assert "placement.sync.synchronization" in loaded
    assert loaded.isdisjoint({"numpy", "sqlalchemy", "alembic", "flask", "placement.engine.forest"})
