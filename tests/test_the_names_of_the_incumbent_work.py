"""Deployments that start OpenStack Placement by its names start this service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.server import database_url

SCRIPT = Path(sys.executable).parent / "placement-api"


def run(*command: str, connection: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "OS_PLACEMENT_DATABASE__CONNECTION": connection,
        "OS_API__AUTH_STRATEGY": "noauth2",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_the_module_has_the_application():
    program = "import flask; from placement.wsgi import api; print(isinstance(api.application, flask.Flask))"
    with database_url("sqlite") as url:
        found = run(sys.executable, "-c", program, connection=url)
        # What is logged before goes there too.
        assert found.stdout.splitlines()[-1:] == ["True"], found.stderr


def test_the_script_is_an_application_where_it_is_loaded():
    """uWSGI and mod_wsgi execute the file under names of their own."""
    program = (
        f"import flask, runpy; print(isinstance(runpy.run_path({str(SCRIPT)!r})['application'], flask.Flask))"
    )
    with database_url("sqlite") as url:
        found = run(sys.executable, "-c", program, connection=url)
        assert found.stdout.splitlines()[-1:] == ["True"], found.stderr


def test_the_script_serves_where_it_is_started():
    shown = run(str(SCRIPT), "--help", connection="sqlite://")
    assert shown.returncode == 0, shown.stderr
    assert "--port" in shown.stdout


def test_its_help_names_the_script():
    script = Path(__file__).parent.parent / "etc" / "placement-api"
    shown = run(sys.executable, str(script), "--help", connection="sqlite://")
    assert shown.stdout.startswith("usage: placement-api [-h]"), shown
    assert "placement serve" not in shown.stdout
    refused = run(sys.executable, str(script), "--prot", "1", connection="sqlite://")
    assert "placement-api: error: unrecognized arguments: --prot" in refused.stderr
