"""placement.conf as kolla-ansible, OpenStack-Ansible, openstack-helm and devstack write it starts unchanged.

Only the address of the database is another one, as MySQL is refused. Addresses of Identity, and folders for
logs, are those of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import commands
from tests.identity_service import IdentityService, project_token
from tests.patience import eventually
from tests.probes import is_ready, probed
from tests.server import database_url, running_service

DATA = Path(__file__).parent / "data" / "deployments"
# The options that each of them writes, and that OpenStack Placement ignores.
IGNORED = {
    "kolla-ansible": [],
    "openstack-ansible": [],
    "openstack-helm": ["auth_uri", "os_region_name"],
    "devstack": [],
}
POLICY = '"context_is_admin": "role:admin"\n"admin_api": "role:admin"\n'


@pytest.fixture
def identity() -> Iterator[IdentityService]:
    tokens = {
        "nova": project_token("admin", "service", user="nova"),
        "reader": project_token("reader", project="projA"),
    }
    with IdentityService(tokens).running() as service:
        yield service


def written(name: str, folder: Path, connection: str, identity: IdentityService) -> Path:
    """The file as that deployment writes it, with this database and this Identity."""
    text = (DATA / f"{name}.conf").read_text()
    text = re.sub(r"^connection = mysql.*$", f"connection = {connection}", text, flags=re.M)
    text = re.sub(r"http://127\.0\.0\.1:5000(/v3)?", identity.url, text)
    for path in ("/var/log/kolla/placement", "/var/log/placement", "/var/lib/placement", "/etc/placement"):
        text = text.replace(path, f"{folder}{path}")
        Path(f"{folder}{path}").mkdir(parents=True, exist_ok=True)
    etc = folder / "etc" / "placement"
    (etc / "logging.conf").write_text((DATA / "openstack-helm-logging.conf").read_text())
    (etc / "policy.yaml").write_text(POLICY)
    (etc / "placement.conf").write_text(text)
    return etc / "placement.conf"


@pytest.mark.parametrize("name", list(IGNORED))
def test_it_starts_and_knows_its_callers(tmp_path: Path, identity: IdentityService, name: str):
    with database_url("sqlite") as connection:
        file = written(name, tmp_path, connection, identity)
        checked = commands.run("config", "check", "--config-file", str(file))
        assert checked.returncode == 0, checked
        warned = re.findall(r"there is no option (\w+) in \[\w+\], so it has no effect", checked.stdout)
        assert warned == IGNORED[name]
        given = ["--config-file", str(file)]
        with running_service(None, workers=1, arguments=given) as server:
            eventually(True, lambda: is_ready(server.url))
            for token, status in ((None, 401), ("nova", 200), ("reader", 403), ("unknown", 401)):
                sent = {"X-Auth-Token": token} if token else {}
                assert probed(server.url, "/resource_providers", **sent)[0] == status, server.log.read_text()
            logged = server.log.read_text()
    logged += "".join(each.read_text() for each in (tmp_path / "var" / "log").rglob("*.log"))
    for option in IGNORED[name]:
        assert f"there is no option {option} in [keystone_authtoken], so it has no effect" in logged


def test_its_own_database_is_refused_by_name(tmp_path: Path, identity: IdentityService):
    file = written(
        "kolla-ansible", tmp_path, "mysql+pymysql://placement:secret@127.0.0.1/placement", identity
    )
    said = commands.refused_start("--config-file", str(file))
    assert "mysql+pymysql" in said
    assert "`placement import`" in said
    assert "docs/moving.md" in said
    assert "secret" not in said
