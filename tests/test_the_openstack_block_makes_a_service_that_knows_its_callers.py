"""The block `In OpenStack` of docs/deploying.md makes a service that answers callers by their roles."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import sqlalchemy as sa

from placement.common.microversions import HEADER
from tests.certificates import Authority
from tests.client import unique
from tests.identity_service import IdentityService, domain_token, project_token, system_token
from tests.patience import PATIENCE_SECONDS
from tests.printed_blocks import Machine, block, machine
from tests.server import postgresql_server

ROLES = {
    "nova": project_token("service", project="service", user="nova"),
    "administrator": project_token("admin"),
    "reader": project_token("reader", project="projA"),
    "system": system_token("admin"),
    "domain": domain_token("admin"),
    "expired": {**project_token("service"), "expires_at": "2020-01-01T00:00:00.000000Z"},
}
ANSWERS = {
    ("GET", "/resource_providers"): (401, 200, 200, 403, 403, 403, 401),
    ("GET", "/usages?project_id=projA"): (401, 200, 200, 200, 403, 403, 401),
    # Its body is empty, and is looked at after the caller.
    ("POST", "/reshaper"): (401, 400, 403, 403, 403, 403, 401),
}


@pytest.fixture
def identity() -> Iterator[IdentityService]:
    # Keystone answers 404 for a token that has expired; one from a cache is looked at by the middleware.
    with IdentityService(dict(ROLES)).running() as service:
        # As it is printed.
        service.own_password = "..."
        service.passwords["admin", "secret", "platform"] = "administrator"
        yield service


def prepared(made: Machine, identity: IdentityService) -> tuple[Authority, dict[str, str]]:
    """The authority of the certificate, and the variables of an administrator, once all of before is done."""
    made.install()
    folder = made.folder / "etc" / "placement"
    authority = Authority(made.folder)
    pair = authority.sign("tls")
    for file in (pair.certificate, pair.key):
        shutil.copy(file, folder)
    (folder / "database-password").write_text("password")
    (folder / "database-password").chmod(0o600)
    engine = sa.create_engine(postgresql_server(), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE ROLE placement LOGIN PASSWORD 'password'"))
        connection.execute(sa.text("CREATE DATABASE placement OWNER placement"))
    identity.services["placement"] = f"https://127.0.0.1:{made.port}"
    administrator = {
        "OS_AUTH_URL": identity.url,
        "OS_USERNAME": "admin",
        "OS_PASSWORD": "secret",
        "OS_PROJECT_NAME": "platform",
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_CACERT": str(authority.file),
        "no_proxy": "127.0.0.1",
    }
    return authority, administrator


def printed(identity: IdentityService) -> str:
    """The second block of the chapter, with the address of this Identity and nothing else in another form."""
    text = block("## In OpenStack\n.*?On the machine of the service:\n\n")
    assert "memcached_servers = localhost:11211\n" in text
    assert "auth_url = https://identity.example.org/v3\n" in text
    return text.replace("https://identity.example.org/v3", identity.url)


def test_every_caller_of_the_walk_gets_the_answer_of_its_role(tmp_path: Path, identity: IdentityService):
    with machine(tmp_path) as made:
        authority, administrator = prepared(made, identity)
        done = made.run(printed(identity), **administrator)
        assert done.returncode == 0, (done, made.log)
        at = f"https://127.0.0.1:{made.port}"
        session = requests.Session()
        session.trust_env, session.verify = False, str(authority.file)
        for (method, path), statuses in ANSWERS.items():
            for token, status in zip((None, *ROLES), statuses, strict=True):
                sent = {"X-Auth-Token": token} if token else {}
                version = {HEADER: "placement 1.39", "Content-Type": "application/json"}
                answer = session.request(
                    method, at + path, headers={**sent, **version}, timeout=PATIENCE_SECONDS
                )
                assert answer.status_code == status, (method, path, token, answer.text, made.log)
        assert identity.asked.count("nova") == 1
        checked = made.run(
            "/opt/placement/bin/placement config check --config-file /etc/placement/placement.conf"
        )
        assert checked.returncode == 0, checked
        assert f"ok: identity: signed in at {identity.url}\n" in checked.stdout
        assert ": memcached: localhost:11211 " in checked.stdout
        # The rest of what is shown there: the command as an administrator has it, with something to list.
        name = unique("host")
        created = subprocess.run(
            ["openstack", "resource", "provider", "create", name, "-f", "json"],
            env={**made.environment, **administrator},
            capture_output=True,
            text=True,
            check=False,
        )
        assert created.returncode == 0, created
        assert json.loads(created.stdout)["name"] == name
