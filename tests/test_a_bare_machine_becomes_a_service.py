"""The block of docs/deploying.md for a machine makes a service that is ready, with the unit it installs."""

from __future__ import annotations

from pathlib import Path

from tests.printed_blocks import block, machine
from tests.probes import probed


def test_the_block_ends_with_a_service_that_is_ready(tmp_path: Path):
    with machine(tmp_path) as made:
        done = made.run(block("## On a machine\n") + '\nprintf "\\n%s" "$TOKEN"')
        assert done.returncode == 0, done
        ready, token = done.stdout.split()
        assert ready == "ok"
        at = f"http://127.0.0.1:{made.port}"
        assert probed(at, "/resource_providers", **{"X-Auth-Token": token})[0] == 200
        assert probed(at, "/resource_providers", **{"X-Auth-Token": "admin"})[0] == 401
        secrets = [tmp_path / "etc" / "placement" / name for name in ("tokens.yaml", "database-password")]
        assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}
