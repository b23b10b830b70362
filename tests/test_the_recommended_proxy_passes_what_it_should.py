"""etc/nginx.conf.sample in front of the real service: TLS, limits, who somebody is, answers as they come."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests import lane_server
from tests.certificates import Authority, Pair
from tests.client import unique
from tests.hostile import Wire
from tests.server import database_url, free_port, running_service

_NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/sbin")
_OPENSSL = shutil.which("openssl")
_SAMPLE = Path(__file__).resolve().parents[1] / "etc" / "nginx.conf.sample"
_STARTS_WITHIN_SECONDS = 30
pytestmark = pytest.mark.skipif(not (_NGINX and _OPENSSL), reason="nginx and openssl are not installed")


@contextmanager
def proxy(url: str, folder: Path, site: str = "") -> Iterator[str]:
    """The base URL of nginx with the sample, or that variant of it, in front of the service at that URL."""
    certificate, key, port = folder / "tls.crt", folder / "tls.key", free_port()
    subject = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = [str(_OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    site = site or _SAMPLE.read_text()
    for placeholder, real in (
        ("127.0.0.1:8778", url.partition("://")[2]),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/nginx/placement.crt", str(certificate)),
        ("/etc/nginx/placement.key", str(key)),
    ):
        assert placeholder in site
        site = site.replace(placeholder, real)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
        f" http {{ access_log off; {temporary}\n{site}\n}}"
    )
    process = subprocess.Popen(
        [str(_NGINX), "-p", str(folder), "-c", str(main), "-e", str(folder / "start.log")]
    )
    try:
        await_port(port, process)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("nginx does not start")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, requests.Session]]:
    """The proxy's URL, and an administrator who trusts its certificate."""
    folder = tmp_path_factory.mktemp("nginx")
    # What a proxy passes on comes from anywhere, which development refuses unless told otherwise.
    arguments = ["--auth", "noauth2", "--allow-remote-noauth"]
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, arguments=arguments) as served,
        proxy(served.url, folder) as url,
        requests.Session() as session,
    ):
        session.trust_env = False
        session.verify = str(folder / "tls.crt")
        session.headers.update({"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"})
        yield url, session


def test_reads_and_writes_pass(session):
    url, client = session
    name = unique()
    created = client.post(f"{url}/resource_providers", json={"name": name}, timeout=60)
    assert created.status_code == 200
    found = client.get(f"{url}/resource_providers?name={name}", timeout=60).json()
    assert [each["name"] for each in found["resource_providers"]] == [name]
    pieces = iter([b'{"name": ', b'"%b"}' % unique().encode()])
    chunked = client.post(
        f"{url}/resource_providers", data=pieces, headers={"Content-Type": "application/json"}, timeout=60
    )
    assert chunked.status_code == 200


@pytest.mark.parametrize("line", ["GET", "G\0T / HTTP/1.1", "GET /\0 HTTP/1.1", "\x16\x03\x01"])
def test_what_is_no_request_is_refused(session, line: str):
    answer = raw(session[0], f"{line}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400") or answer.startswith(b'{"errors"'), answer[:200]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/healthcheck"])
def test_what_is_for_who_watches_does_not_pass(session, path: str):
    url, client = session
    assert client.get(f"{url}{path}", timeout=60).status_code == 404


def raw(url: str, sent: bytes) -> bytes:
    """What the proxy answers to these bytes, until it closes."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=60) as plain, context.wrap_socket(plain) as wire:
        wire.sendall(sent)
        return b"".join(iter(lambda: wire.recv(65536), b""))


@pytest.mark.parametrize("host", ["", "Host: placement.example.org:8443\r\n"])
def test_a_client_of_http_1_0_may_name_no_host(session, host: str):
    answer = raw(
        session[0], f"GET /resource_providers HTTP/1.0\r\nX-Auth-Token: admin\r\n{host}\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]


def test_nobody_gets_a_role_by_a_header(session):
    url, client = session
    claimed = {"X-Auth-Token": "somebody", "X-Roles": "admin", "X-Is-Admin-Project": "True"}
    assert client.get(f"{url}/resource_providers", headers=claimed, timeout=60).status_code == 403


def test_long_queries_pass_and_long_bodies_do_not(session):
    url, client = session
    assert client.get(f"{url}/resource_providers?name={'x' * 64_000}", timeout=60).status_code == 200
    body = b" " * (33 * 2**20)
    headers = {"Content-Type": "application/json"}
    try:
        answer = client.post(f"{url}/resource_providers", data=body, headers=headers, timeout=60)
    except requests.ConnectionError:
        # nginx closes while the client is still sending, which then may not read the answer.
        return
    assert answer.status_code == 413


def test_it_passes_requests_on_through_tls_and_shows_its_certificate(tmp_path: Path):
    authority = Authority(tmp_path)
    client = authority.sign("proxy")
    lines = []
    for line in _SAMPLE.read_text().splitlines():
        if line.strip() != "proxy_pass http://placement;":
            lines.append(re.sub(r"^(\s*)#(proxy_\S+ .*;)$", r"\1\2", line))
    site = "\n".join(lines)
    for placeholder, real in (
        ("/etc/nginx/placement-ca.crt", str(authority.file)),
        ("/etc/nginx/placement-client.crt", str(client.certificate)),
        ("/etc/nginx/placement-client.key", str(client.key)),
        ("proxy_ssl_name placement.example.org", "proxy_ssl_name localhost"),
    ):
        assert placeholder in site
        site = site.replace(placeholder, real)
    arguments = [*authority.sign("server").arguments, "--tls-client-ca", str(authority.file)]
    arguments += ["--auth", "noauth2", "--allow-remote-noauth"]
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, arguments=arguments) as served,
        proxy(served.url, tmp_path, site) as url,
    ):
        asked = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
        answer = requests.get(f"{url}/traits", headers=asked, verify=str(tmp_path / "tls.crt"), timeout=60)
        assert answer.status_code == 200
        assert answer.json()["traits"]


def chunked(url: str, path: str, body: bytes, pair: Pair) -> bytes:
    """What the proxy answers to a body in chunks that begins so."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(pair.certificate, pair.key)
    with (
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as plain,
        context.wrap_socket(plain) as wire,
    ):
        wire.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)
        return wire.recv(65536)


def test_kube_scheduler_with_a_certificate_needs_no_token_and_is_always_answered_200(tmp_path: Path):
    authority, token = Authority(tmp_path), "the-token-that-only-the-proxy-has"
    scheduler, other = authority.sign("kube-scheduler"), authority.sign("other")
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"{token}: {{user: kube-scheduler, roles: [extender], clusters: [edge]}}\n")
    tokens.chmod(0o600)
    site = re.sub(r'#(ssl_\S+ .*;|"~)', r"\1", _SAMPLE.read_text()).replace('"TOKEN"', f'"{token}"')
    site = site.replace("/etc/nginx/placement-clients.crt", str(authority.file))
    environment = {"OS_API__AUTH_STRATEGY": "token", "OS_API__TOKENS_FILE": str(tokens)}
    verb, roots = "/ext/v1/clusters/edge/extender/filter", str(tmp_path / "tls.crt")

    def error(url: str, cert: Pair | None, **headers: str) -> str:
        files = None if cert is None else (str(cert.certificate), str(cert.key))
        answer = requests.post(
            url + verb,
            json={"Pod": {}, "NodeNames": []},
            headers=headers,
            verify=roots,
            cert=files,
            timeout=60,
        )
        assert answer.status_code == 200
        found: str = answer.json()["Error"]
        return found

    with database_url("sqlite") as connection:
        with (
            running_service(connection, workers=1, environment=environment) as served,
            proxy(served.url, tmp_path, site) as url,
        ):
            assert error(url, scheduler) == "No cluster edge found"
            assert error(url, scheduler, **{"X-Auth-Token": "of the caller"}) == "No cluster edge found"
            for stranger in (other, None):
                assert "A known token is required" in error(url, stranger)
            files = (str(scheduler.certificate), str(scheduler.key))
            for path in ("/traits", "/ext/v1/clusters/batch", f"/traits?{verb}"):
                assert requests.get(url + path, verify=roots, cert=files, timeout=60).status_code == 401
        with proxy("http://127.0.0.1:1", tmp_path, site) as url:
            assert "could not pass" in error(url, scheduler)
            # Of another authority, as good as an expired one.
            (tmp_path / "others").mkdir()
            foreign = Authority(tmp_path / "others").sign("kube-scheduler")
            assert "The proxy refuses" in error(url, foreign)
            assert "The proxy refuses" in error(url, scheduler, **{"X-Long": "x" * 80_000})
            files = (str(foreign.certificate), str(foreign.key))
            assert requests.get(f"{url}/traits", verify=roots, cert=files, timeout=60).status_code == 400
            plain = requests.post(f"http{url.removeprefix('https')}{verb}", json={}, timeout=60)
            assert (plain.status_code, "The proxy refuses" in plain.text) == (200, True)
            assert chunked(url, verb, b"zz\r\n", scheduler).startswith(b"HTTP/1.1 200")


def test_answers_come_as_they_are_produced(tmp_path: Path):
    with lane_server.running() as server, proxy(server.url, tmp_path) as url:
        answer = requests.get(f"{url}/stream", verify=str(tmp_path / "tls.crt"), stream=True, timeout=60)
        with answer:
            # The answer never ends.
            assert next(answer.iter_content(8)) == b"0000000\n"
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
