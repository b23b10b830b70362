"""Tokens of OpenStack Identity are validated with memcached, encrypted or not, and where it is silent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import oslo_cache
import pytest
from keystonemiddleware.auth_token import _memcache_crypt
from oslo_config import cfg

from placement.http.errors import Misconfigured
from placement.http.strategies.keystone import Keystone
from placement.http.strategies.token_middleware import NotSignedIn
from placement.storage.database import Database
from tests import commands
from tests.client import Client, detail
from tests.conftest import application_of, configured, with_options
from tests.identity_service import GROUP, IdentityService, project_token
from tests.memcached import Memcached
from tests.patience import eventually
from tests.probes import figure, is_ready, probed
from tests.server import database_url, free_port, running_service

TOKEN = "token-of-nova"
SECRET = "0123456789abcdef"


@pytest.fixture
def identity() -> Iterator[IdentityService]:
    with IdentityService({TOKEN: project_token("service", user="nova-itself")}).running() as service:
        yield service


def configuration(identity: IdentityService, **options: object) -> cfg.ConfigOpts:
    """The configuration of a service that asks there."""
    settings = with_options(configured(), auth_strategy="keystone")
    identity.configure(settings)
    return with_options(settings, GROUP, **options)


@contextmanager
def service(database: Database, identity: IdentityService, **options: object) -> Iterator[Client]:
    """A process of the service, with memory of its own, that asks there."""
    with application_of(database, configuration(identity, **options)) as application:
        yield Client(application.test_client())


@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("strategy", ["None", "MAC", "ENCRYPT"])
def test_what_one_process_has_validated_another_finds_in_memcached(
    embedded_database: Database, identity: IdentityService, strategy: str, pool: bool
):
    with Memcached().running() as memcached:
        options = {
            "memcached_servers": [memcached.address],
            "memcache_security_strategy": strategy,
            "memcache_secret_key": SECRET,
            "memcache_use_advanced_pool": pool,
        }
        for _ in range(2):
            with service(embedded_database, identity, **options) as api:
                assert api.as_(None).get("/resource_providers").status_code == 401
                assert api.as_(TOKEN).get("/resource_providers").status_code == 200
                assert api.as_("unknown").get("/resource_providers").status_code == 401
        stored = b"".join(value for _, value in memcached.values.values())
    assert identity.asked.count(TOKEN) == 1
    assert stored
    assert (b"nova-itself" in stored) == (strategy == "None")


def test_memcached_that_does_not_run_changes_no_answer(
    embedded_database: Database, identity: IdentityService
):
    address = f"127.0.0.1:{free_port()}"
    with service(embedded_database, identity, memcached_servers=[address]) as api:
        assert api.as_(None).get("/resource_providers").status_code == 401
        assert api.as_(TOKEN).get("/resource_providers").status_code == 200
        assert api.as_("unknown").get("/resource_providers").status_code == 401


def test_memcached_that_says_nothing_is_given_up_for_minutes(
    embedded_database: Database, identity: IdentityService
):
    settings = configuration(identity)
    Keystone(settings)
    assert settings[GROUP].memcache_pool_socket_timeout == 1
    with (
        Memcached(is_silent=True).running() as memcached,
        service(embedded_database, identity, memcached_servers=[memcached.address]) as api,
    ):
        for token, status in ((TOKEN, 200), *((f"unknown-{number}", 401) for number in range(5))):
            assert api.as_(token).get("/resource_providers").status_code == status
        assert memcached.connections == 1


@pytest.mark.parametrize("option", ["memcache_tls_enabled", "memcache_sasl_enabled"])
def test_memcached_behind_tls_or_a_password_changes_no_answer_either(
    embedded_database: Database, identity: IdentityService, option: str
):
    options = {option: True, "memcached_servers": [f"127.0.0.1:{free_port()}"]}
    with service(embedded_database, identity, **options) as api:
        assert api.as_(TOKEN).get("/resource_providers").status_code == 200


def hidden(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let the module be missing here."""
    monkeypatch.setitem(sys.modules, module, None)
    for each in ("_memcache_pool", "_bmemcache_pool"):
        monkeypatch.delitem(sys.modules, f"oslo_cache.{each}", raising=False)
        monkeypatch.delattr(oslo_cache, each, raising=False)


WITHOUT = {
    "memcache": ("memcached_servers = 127.0.0.1:1\n", "import of memcache "),
    "memcache without the pool": (
        "memcached_servers = 127.0.0.1:1\nmemcache_use_advanced_pool = false\n",
        "import of memcache ",
    ),
    "bmemcached": (
        "memcached_servers = 127.0.0.1:1\nmemcache_sasl_enabled = true\n",
        "import of bmemcached ",
    ),
    "cryptography": (
        f"memcache_security_strategy = ENCRYPT\nmemcache_secret_key = {SECRET}\n",
        "memcache_security_strategy needs the package cryptography;",
    ),
}


@pytest.mark.parametrize("missing", list(WITHOUT))
def test_a_package_that_an_option_needs_is_missing_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, identity: IdentityService, missing: str
):
    options, words = WITHOUT[missing]
    hidden(monkeypatch, missing.split()[0])
    if missing == "cryptography":
        monkeypatch.setattr(_memcache_crypt, "ciphers", None)
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = sqlite:///{tmp_path}/x\n{identity.text()}{options}")
    said = commands.refused_start("--config-file", str(file))
    assert said.startswith("[keystone_authtoken] cannot be used: ")
    assert words in said
    assert said.endswith("install this package with its extra `keystone`.")
    checked = commands.run("config", "check", "--config-file", str(file))
    assert (checked.returncode, f"error: callers: {said}" in checked.stdout) == (1, True), checked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memcache_security_strategy": "ENCRYPT"}, "memcache_secret_key must be defined"),
        ({"memcached_servers": ["unknown:form:of:address"]}, "unknown:form:of:address"),
        ({"auth_type": "no-such-way"}, "no-such-way"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_at_the_start(
    identity: IdentityService, options: dict[str, object], words: str
):
    settings = configuration(identity, **options)
    with pytest.raises(Misconfigured, match=words):
        Keystone(settings)
    assert identity.asked == []


def test_identity_that_is_away_keeps_no_service_from_being_ready(tmp_path: Path):
    away = IdentityService({})
    away.close()
    file = tmp_path / "placement.conf"
    file.write_text(f"[api]\nauth_strategy = keystone\n{away.text()}")
    with (
        database_url("sqlite") as url,
        running_service(url, workers=1, arguments=["--config-file", str(file)]) as server,
    ):
        eventually(True, lambda: is_ready(server.url))
        # The worker tries to sign in by itself.
        eventually(1.0, lambda: figure(server.url, "placement_identity_checks_total", outcome="unreachable"))
        assert probed(server.url, "/resource_providers", **{"X-Auth-Token": TOKEN})[0] == 503
        eventually(2.0, lambda: figure(server.url, "placement_identity_checks_total", outcome="unreachable"))
        warned = [line for line in server.log.read_text().splitlines() if "identity unreachable: " in line]
    assert len(warned) == 1
    assert away.url in warned[0]


def test_a_service_that_may_not_sign_in_says_that_it_is_not_the_callers_fault(
    embedded_database: Database, identity: IdentityService
):
    with service(embedded_database, identity, password="another") as api:
        answer = api.as_(TOKEN).get("/resource_providers")
        assert answer.status_code == 503
        assert detail(answer) == "The identity service cannot be asked."
        assert api.as_(None).get("/resource_providers").status_code == 401


def checked(identity: IdentityService, folder: Path, options: str = "") -> tuple[int, dict[str, str]]:
    """The exit code of `config check`, and what it says of Identity and memcached."""
    file = folder / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = sqlite:///{folder}/x\n{identity.text()}{options}")
    done = commands.run("config", "check", "--config-file", str(file))
    lines = [line.split(": ", 2) for line in done.stdout.splitlines()]
    return done.returncode, {
        subject: f"{severity}: {sentence}"
        for severity, subject, sentence in lines
        if subject in ("identity", "memcached")
    }


def test_a_check_signs_in_and_asks_memcached(tmp_path: Path, identity: IdentityService):
    assert checked(identity, tmp_path) == (0, {"identity": f"ok: signed in at {identity.url}"})
    with Memcached().running() as memcached:
        _, found = checked(identity, tmp_path, f"memcached_servers = {memcached.address}\n")
    assert found["memcached"] == f"ok: {memcached.address} answers"
    with Memcached(is_silent=True).running() as memcached:
        code, found = checked(identity, tmp_path, f"memcached_servers = {memcached.address}\n")
    assert code == 0
    assert found["memcached"].startswith(f"warning: {memcached.address} does not answer; ")
    code, found = checked(
        identity, tmp_path, "memcached_servers = 127.0.0.1:1\nmemcache_sasl_enabled = yes\n"
    )
    assert (code, found["memcached"].startswith("warning: 127.0.0.1:1 does not answer; ")) == (0, True)


def test_a_check_says_why_no_caller_could_be_identified(tmp_path: Path, identity: IdentityService):
    code, found = checked(identity, tmp_path, "region_name = Elsewhere\n")
    assert code == 1
    assert "no endpoint to validate tokens at: " in found["identity"]
    assert "Elsewhere" in found["identity"]
    identity.catalog_is_empty = True
    assert checked(identity, tmp_path)[0] == 1
    identity.catalog_is_empty = False
    text = identity.text()
    identity.own_password = "another"
    file = tmp_path / "old.conf"
    file.write_text(f"[placement_database]\nconnection = sqlite:///{tmp_path}/x\n{text}")
    done = commands.run("config", "check", "--config-file", str(file))
    assert f"error: identity: {identity.url} refuses the user placement: " in done.stdout
    assert done.returncode == 1
    away = IdentityService({})
    away.close()
    code, found = checked(away, tmp_path)
    assert (code, found["identity"].startswith(f"error: {away.url} cannot be asked: ")) == (1, True)


def test_a_check_waits_for_identity_no_longer_than_for_seconds(tmp_path: Path):
    silent = IdentityService({})
    settings = configuration(silent, http_connect_timeout=600)
    middleware = Keystone(settings).middleware
    with pytest.raises(NotSignedIn):
        middleware.sign_in(0.2)
    silent.close()
