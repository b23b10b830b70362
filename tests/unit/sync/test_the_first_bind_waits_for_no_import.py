"""A service that may bind has imported the client library when it serves: that takes most of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.api_server_http import write_kubeconfig

PROGRAM = """
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


def test_the_first_bind_waits_for_no_import(tmp_path: Path):
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", ("edge", "http://127.0.0.1:1"))
    command = [sys.executable, "-c", PROGRAM, str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done
