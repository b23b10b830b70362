"""Passwords and tokens are seen by nobody who does not need them."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sqlalchemy as sa

from placement.client.client import Client, ServiceError
from placement.common import secrets
from placement.engine.domain.errors import PlacementError
from placement.server import settings
from placement.storage.database import Database
from placement.sync.api_server import ApiServer, ApiServerError
from tests.api_server import write_kubeconfig
from tests.commands import run
from tests.patience import eventually
from tests.server import database_url, running_service

ROOT = Path(__file__).resolve().parents[1]


# -- tokens and redirects --------------------------------------------------------------------------------


class Redirecting:
    """Two servers: the first redirects to the second, which notes what it is sent."""

    def __init__(self, code: int, own_name: str = "127.0.0.1") -> None:
        self.seen: list[dict[str, str]] = []
        self.second = self._answering(200)
        self.first = self._answering(code, f"http://{own_name}:{self.second.server_address[1]}/taken")
        self.url = f"http://127.0.0.1:{self.first.server_address[1]}"

    def _answering(self, code: int, target: str | None = None) -> ThreadingHTTPServer:
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(code)
                if target is None:
                    seen.append({name.lower(): value for name, value in self.headers.items()})
                else:
                    self.send_header("Location", target)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PUT = do_POST = do_DELETE = do_PATCH = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @contextmanager
    def running(self) -> Iterator[Redirecting]:
        for server in (self.first, self.second):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            for server in (self.first, self.second):
                server.shutdown()
                server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_token_is_not_sent_to_where_the_service_redirects(code: int, name: str):
    # Another port is another service, on the same address, too.
    with Redirecting(code, name).running() as servers:
        client = Client(servers.url, "the-token-of-the-caller")
        client.get("/anything")
        client.put("/anything", {})
        assert len(servers.seen) == 2
        for headers in servers.seen:
            assert not any("the-token-of-the-caller" in value for value in headers.values())


def test_credentials_of_kubernetes_are_not_sent_to_where_it_redirects(tmp_path: Path):
    with Redirecting(307, "localhost").running() as servers:
        token = "the-token-of-kubernetes"
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", ("c", servers.url), token=token)
        api_server = ApiServer(str(kubeconfig))
        with pytest.raises(ApiServerError):
            api_server.get("/api/v1/nodes/n")
        assert servers.seen == []


@pytest.mark.parametrize("scheme", ["https", "ftp"])
def test_a_url_with_a_token_in_it_is_refused_and_not_shown(scheme: str):
    with pytest.raises(ServiceError, match="takes no user and no password") as refused:
        Client(f"{scheme}://:the-secret@127.0.0.1:1", "token")
    assert "the-secret" not in str(refused.value)


def test_a_password_in_the_url_of_an_api_server_is_not_shown(tmp_path: Path):
    """The extender answers such messages, and kube-scheduler writes them into Events."""
    config = write_kubeconfig(tmp_path / "config", ("edge", "https://user:the-secret@127.0.0.1:1"))
    with pytest.raises(ApiServerError, match="cannot be reached") as away:
        ApiServer(str(config), "edge").get("/api/v1/nodes/n")
    assert "127.0.0.1:1" in str(away.value)
    assert "the-secret" not in str(away.value)


def test_a_client_without_redirects_sends_its_token(tmp_path: Path):
    with database_url("sqlite") as url, running_service(url, workers=1) as server:
        assert Client(server.url, "admin").get("/resource_providers") == {"resource_providers": []}
        with pytest.raises(ServiceError):
            Client(server.url, "nobody").get("/resource_providers")


# -- passwords of databases ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@host/placement", "postgresql://host/placement"),
        ("postgresql://u@host:5433/placement", "postgresql://host:5433/placement"),
        ("postgresql://host/p?password=secret", "postgresql://host/p?password=***"),
        ("postgresql://host/p?a=b&sslpassword=secret&c=d", "postgresql://host/p?a=b&sslpassword=***&c=d"),
        ("postgresql://host/p?PASSWORD=se%20cret", "postgresql://host/p?PASSWORD=***"),
        ("postgresql:///p?host=/run/postgresql&user=u", "postgresql:///p?host=/run/postgresql&user=u"),
        ("sqlite:////var/placement.sqlite", "sqlite:////var/placement.sqlite"),
    ],
)
def test_what_is_printed_of_a_url_has_no_password(url: str, shown: str):
    assert secrets.shown(url) == shown
    assert secrets.has_password(url) is ("cret" in url)


def test_the_password_comes_from_a_file(tmp_path: Path):
    password, file = "p@ss:w/rd %41?&#", tmp_path / "password"
    file.write_text(f"{password}\n")
    for user, named in (("postgres@", "postgres"), ("postgres:@", "postgres"), ("", None)):
        parsed = sa.make_url(secrets.with_password_of(str(file), f"postgresql://{user}host/p"))
        assert (parsed.username or None, parsed.password, parsed.host) == (named, password, "host")


def test_a_password_that_cannot_be_meant_is_refused(tmp_path: Path):
    file = tmp_path / "password"
    for url, content in (
        ("postgresql://u@host/p", None),
        ("postgresql://u:hunter2@host/p", "x"),
        ("postgresql://host/p?password=hunter2", "x"),
        ("postgresql://u@host/p", ""),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(PlacementError, match="password") as refused:
            secrets.with_password_of(str(file), url)
        assert "hunter2" not in str(refused.value)


def test_files_that_others_may_read_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    for mode in (0o600, 0o644):
        assert caplog.messages == []
        file.chmod(mode)
        secrets.warn_if_readable(str(file), "the credentials")
    (warning,) = caplog.messages
    assert str(file) in warning
    assert "chmod 600" in warning


@pytest.mark.parametrize("is_in_the_url", [False, True])
def test_no_way_to_give_a_password_shows_it(tmp_path: Path, is_in_the_url: bool):
    """A server that trusts this machine does not ask for it, so that it arrives is shown by the log alone."""
    secret = "hunter2hunter2"
    with database_url("postgresql") as whole:
        parsed = sa.make_url(whole).set(drivername="postgresql")
        url = parsed.set(username=parsed.username or "postgres", password=secret if is_in_the_url else None)
        environment = {
            "OS_API__AUTH_STRATEGY": "noauth2",
            "OS_DEFAULT__DEBUG": "true",
            "OS_PLACEMENT_DATABASE__CONNECTION": url.render_as_string(hide_password=False),
            "OS_PLACEMENT_DATABASE__CONNECTION_PARAMETERS": f"sslpassword={secret}",
        }
        if not is_in_the_url:
            file, passwords = tmp_path / "file", tmp_path / "pgpass"
            file.write_text(secret)
            passwords.write_text(f"*:*:*:*:{secret}\n")
            for each in (file, passwords):
                each.chmod(0o600)
            environment |= {
                "OS_PLACEMENT_DATABASE__PASSWORD_FILE": str(file),
                "PGPASSFILE": str(passwords),
                "PGPASSWORD": secret,
            }
        with running_service(None, workers=1, environment=environment) as server:
            arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
            eventually(True, lambda: "listens on" in server.log.read_text())
            log = server.log.read_text()
            assert secret.encode() not in arguments
            assert "connection_parameters" in log
            assert secret not in log


def test_connections_that_are_logged_show_no_secret():
    with database_url("postgresql") as url:
        database = Database(url, parameters="sslpassword=hunter2hunter2&application_name=hunter2")
        with database.read() as connection:
            assert "hunter2" not in repr(connection.connection.dbapi_connection)
        database.dispose()


def test_a_password_on_the_command_line_is_warned_about(tmp_path: Path):
    warned = run("db", "version", "--database", "postgresql://u:hunter2@127.0.0.1:1/none")
    assert "password_file" in warned.stderr
    assert "hunter2" not in warned.stderr + warned.stdout
    silent = run("db", "version", "--database", f"sqlite:///{tmp_path}/x.sqlite")
    assert silent.stderr == ""


# -- files -----------------------------------------------------------------------------------------------


_FILE_ENDINGS = ("", "-wal", "-shm", "-queue", "-turn")


def test_sqlite_files_are_their_owners(tmp_path: Path):
    before = os.umask(0)
    try:
        url = f"sqlite:///{tmp_path}/placement.sqlite"
        assert run("db", "upgrade", "--database", url).returncode == 0
        database = Database(url)
        with database.write() as transaction:
            transaction.execute(sa.text("CREATE TABLE t (x INTEGER)"))
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        database.dispose()
    finally:
        os.umask(before)
    assert found == dict.fromkeys((f"placement.sqlite{end}" for end in _FILE_ENDINGS), 0o600)


def test_options_with_secrets_are_masked():
    options = settings.load()._groups["placement_database"]._opts
    for name in ("connection", "slave_connection", "connection_parameters"):
        assert options[name]["opt"].secret, name


# -- what the documentation says -------------------------------------------------------------------------


def test_documents_have_no_password_and_install_nothing_of_others():
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in [*documents, *(ROOT / "placement").rglob("*.py")]:
        for match in re.finditer(r"pip install\s+[^\n]*", page.read_text()):
            named = re.sub(r"#.*", "", match[0])
            foreign = re.search(r"\binstall\s+(-\S+\s+)*['\"]?placement(\[|['\"\s]|$)", named)
            assert not foreign, f"{page}: {named}"
    for page in documents:
        for line in page.read_text().splitlines():
            assert not re.search(r"--database\s+\S+://[^\s/@]*:[^\s/@]+@", line), f"{page}: {line}"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_a_password_file_needs_a_database_with_accounts(tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text("[placement_database]\nconnection = sqlite:///x.sqlite\npassword_file = /nowhere\n")
    with pytest.raises(PlacementError, match="SQLite has no passwords"):
        settings.connection_of(settings.load([str(file)]))
