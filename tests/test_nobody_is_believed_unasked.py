"""Every caller is believed only where somebody asked for it, and only callers on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from placement.app import build
from placement.metrics import sharing
from placement.server import ports, settings
from placement.storage.database import Database
from tests.client import Client, detail
from tests.commands import errors_of_start, refusal, run
from tests.conftest import application_on, compatible, configured
from tests.patience import PATIENCE_SECONDS
from tests.probes import probed
from tests.server import RunningServer, await_answer, free_port

ADMIN = {"X-Auth-Token": "admin"}


@pytest.fixture(autouse=True)
def serving_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this process, which is not one to serve."""
    monkeypatch.setattr(sharing, "share", lambda: None)
    monkeypatch.setattr(settings, "start_logging", lambda _: None)
    monkeypatch.setattr(ports, "listening", lambda *_: pytest.fail("it would serve"))


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/placement.sqlite"


# -- who asked for it ------------------------------------------------------------------------------------


def test_without_a_configuration_nobody_is_believed(database: str, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for environment in ({}, {"OS_PLACEMENT_CONFIG_DIR": str(empty)}):
        said = refusal("serve", "--database", database, **environment)
        for choice in ("--demo", "--auth", "auth_strategy", "keystone", "token", "noauth2"):
            assert choice in said
    assert not (tmp_path / "placement.sqlite").exists()


def test_a_directory_of_configuration_that_is_not_there_is_refused(database: str, tmp_path: Path):
    said = refusal("serve", "--database", database, OS_PLACEMENT_CONFIG_DIR=f"{tmp_path}/mistyped")
    assert "OS_PLACEMENT_CONFIG_DIR" in said
    assert "mistyped" in said
    said = refusal("serve", "--database", database, OS_PLACEMENT_CONFIG_DIR="")
    assert "OS_PLACEMENT_CONFIG_DIR: an empty text is not a directory" in said


def test_a_file_of_configuration_that_is_not_there_is_refused(database: str, tmp_path: Path):
    assert "--config-file" in refusal("serve", "--config-file", f"{tmp_path}/none.conf")
    said = refusal("serve", "--database", database, OS_PLACEMENT_CONFIG_FILE=f"{tmp_path}/none.conf")
    assert "OS_PLACEMENT_CONFIG_FILE" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[placement_database]\nconection = x\n", "did you mean connection?"),
        ("[placement_databse]\nconnection = x\n", "did you mean [placement_database]?"),
        ("[api]\nauth_strategi = token\n", "did you mean auth_strategy?"),
        ("[api]\nsomething_else = 1\n", "something_else"),
        ("[DEFAULT]\nlog_option = 1\n", "did you mean log_options?"),
        ("[api]\nauth_strategy = nobody\n", "auth_strategy"),
        ("[placement_database]\nmax_pool_size = many\n", "max_pool_size"),
        ("nonsense\n", "placement.conf"),
    ],
)
def test_what_nobody_would_look_at_in_a_file_is_refused(database: str, tmp_path: Path, text: str, said: str):
    file = tmp_path / "placement.conf"
    file.write_text(text)
    # What is missing beside it is told, too.
    assert said in "\n".join(errors_of_start("--config-file", str(file), "--database", database))


def test_what_nobody_would_look_at_in_the_environment_is_refused(database: str):
    said = refusal("serve", "--auth", "noauth2", "--database", database, OS_API__TOKEN_FILE="x")
    assert "OS_API__TOKEN_FILE" in said
    assert "did you mean tokens_file?" in said


def test_options_of_libraries_are_left_to_them(database: str, tmp_path: Path):
    file = tmp_path / "placement.conf"
    text = (
        "[DEFAULT]\ntransport_url = x\ndebug = false\n[keystone_authtoken]\nregion_name = r\n[cache]\nx = y\n"
    )
    file.write_text(text)
    finished = run("db", "upgrade", "--config-file", str(file), "--database", database)
    assert finished.returncode == 0, finished.stderr


def test_without_a_database_nothing_is_served(tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text("[api]\nauth_strategy = noauth2\n")
    said = refusal("serve", "--config-file", str(file))
    assert "[placement_database] connection" in said
    assert "--database" in refusal("db", "upgrade", "--config-file", str(file))


def test_keystone_without_a_word_about_keystone_is_refused(database: str, tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text("[DEFAULT]\ndebug = false\n")
    said = refusal("serve", "--config-file", str(file), "--database", database)
    assert "[keystone_authtoken]" in said


def test_an_application_that_nobody_configured_believes_nobody(embedded_database: Database):
    with pytest.raises(Exception, match="keystone"):
        build(embedded_database, configured())
    assert configured().api.auth_strategy == "keystone"


def test_another_wsgi_server_without_a_configuration_starts_nothing(database: str, tmp_path: Path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    for environment, said in (
        ({"OS_PLACEMENT_DATABASE__CONNECTION": database}, "auth_strategy"),
        ({"OS_API__AUTH_STRATEGY": "noauth2"}, "[placement_database] connection"),
    ):
        finished = subprocess.run(
            [sys.executable, "-c", "import placement.wsgi"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env={**kept, "OS_PLACEMENT_CONFIG_DIR": str(tmp_path), **environment},
        )
        assert finished.returncode == 1
        assert said in finished.stderr
        assert "Traceback" not in finished.stderr


def test_development_is_refused_beyond_loopback_also_when_configured(database: str, tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = {database}\n[api]\nauth_strategy = noauth2\n")
    said = refusal("serve", "--config-file", str(file), "--host", "0.0.0.0")
    assert "--allow-remote-noauth" in said


# -- who is on this machine ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def believing(embedded_application) -> FlaskClient:
    return embedded_application.test_client()


@pytest.mark.parametrize("path", ["/", "/resource_providers", "/nonsense"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8778", "192.0.2.1", "localhost.evil.example", "127.0.0.1.nip.io", "[::2]"],
)
def test_other_names_of_this_machine_are_refused(believing: FlaskClient, path: str, host: str):
    answer = believing.get(path, headers={**ADMIN, "Host": host})
    assert answer.status_code == 403
    assert "Host" in detail(answer)
    assert "noauth2" in detail(answer)


@pytest.mark.parametrize("host", ["evil.example@127.0.0.1", "127.0.0.1/evil.example", "[", "", "a b"])
def test_what_is_no_host_is_refused(believing: FlaskClient, host: str):
    answer = believing.get("/resource_providers", headers=ADMIN, environ_overrides={"HTTP_HOST": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8778", "127.0.0.1:8778", "127.3.2.1", "[::1]:8778"])
def test_names_of_loopback_are_served(believing: FlaskClient, host: str):
    assert believing.get("/resource_providers", headers={**ADMIN, "Host": host}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "CDN-Loop",
        "CF-Connecting-IP",
        "Client-IP",
        "Fastly-Client-IP",
        "Fly-Client-IP",
        "Forwarded",
        "True-Client-IP",
        "Via",
        "X-Client-IP",
        "X-Original-Forwarded-For",
        "X-Azure-ClientIP",
        "X-Azure-SocketIP",
        "X-Cluster-Client-IP",
        "X-Envoy-External-Address",
        "X-Envoy-Original-Path",
        "X-ProxyUser-IP",
        "X-Real-IP",
        "X-Remote-Addr",
        "X-Remote-IP",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Server",
    ],
)
def test_what_a_proxy_brings_in_is_refused(believing: FlaskClient, header: str):
    answer = believing.get("/resource_providers", headers={**ADMIN, header: "127.0.0.1"})
    assert answer.status_code == 403
    assert header.lower() in detail(answer).lower()


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://localhost.evil.example", "null", "", "http://127.0.0.1@evil.example"],
)
def test_pages_of_other_sites_are_refused(believing: FlaskClient, origin: str):
    answer = believing.get("/resource_providers", headers={**ADMIN, "Origin": origin})
    assert answer.status_code == 403
    assert "Origin" in detail(answer)


def test_what_browsers_fetch_for_other_sites_is_refused(believing: FlaskClient):
    """An image of another site brings no Origin."""
    for site, status in (("cross-site", 403), ("same-site", 200), ("same-origin", 200), ("none", 200)):
        answer = believing.get("/resource_providers", headers={**ADMIN, "Sec-Fetch-Site": site})
        assert answer.status_code == status, site


def test_links_of_other_sites_can_be_followed_and_forms_of_theirs_change_nothing(believing: FlaskClient):
    followed = {**ADMIN, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert believing.get("/resource_providers", headers=followed).status_code == 200
    assert believing.post("/resource_providers", json={"name": "a"}, headers=followed).status_code == 403


@pytest.mark.parametrize("origin", ["http://localhost:8778", "https://127.0.0.1", "http://[::1]:3000"])
def test_pages_of_this_machine_are_served(believing: FlaskClient, origin: str):
    assert believing.get("/resource_providers", headers={**ADMIN, "Origin": origin}).status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1", ""])
def test_other_machines_are_refused(believing: FlaskClient, address: str):
    answer = believing.get("/resource_providers", headers=ADMIN, environ_overrides={"REMOTE_ADDR": address})
    assert answer.status_code == 403
    assert "address" in detail(answer)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_served(believing: FlaskClient, address: str):
    answer = believing.get("/resource_providers", headers=ADMIN, environ_overrides={"REMOTE_ADDR": address})
    assert answer.status_code == 200


def test_whoever_wants_to_can_believe_everybody():
    with application_on("sqlite", settings=compatible(allow_remote_noauth=True)) as application:
        api = Client(application.test_client())
        assert api.get("/traits", X_Forwarded_For="192.0.2.7", Host="evil.example").status_code == 200


@pytest.fixture(scope="module")
def plain_gunicorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service behind gunicorn on all addresses, as nobody should run it; its port."""
    directory = tmp_path_factory.mktemp("plain")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-b", f"0.0.0.0:{port}", "-w", "1", "placement.wsgi:application"],
        env={
            **os.environ,
            "OS_API__AUTH_STRATEGY": "noauth2",
            "OS_PLACEMENT_DATABASE__CONNECTION": f"sqlite:///{directory}/placement.sqlite",
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        yield str(port)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _addresses_of_this_machine() -> list[str]:
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return [address for address in found if "." in address and not address.startswith("127.")]


def test_plain_gunicorn_on_all_addresses_serves_this_machine_only(plain_gunicorn: str):
    near = f"http://127.0.0.1:{plain_gunicorn}"
    await_answer(near)
    assert probed(near, "/resource_providers", **ADMIN)[0] == 200
    for address in _addresses_of_this_machine():
        far = f"http://{address}:{plain_gunicorn}"
        assert probed(far, "/traits", **ADMIN, Host="localhost")[0] == 403


def test_a_demonstration_is_served_to_this_machine(demonstration: RunningServer):
    assert probed(demonstration.url, "/resource_providers", **ADMIN)[0] == 200
    assert probed(demonstration.url, "/resource_providers", **ADMIN, Host="evil.example")[0] == 403
