"""`placement serve` speaks TLS itself: who is let in, what is refused at the start, how files are renewed."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from cryptography.hazmat.primitives import serialization

from placement.common.secrets import is_open_to_others
from placement.engine.domain.errors import PlacementError
from placement.http.middleware import watch_of
from placement.http.worker.exchange import Outgoing
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.tls import Tls, TlsFiles
from tests.certificates import Authority, Pair
from tests.client import custom, unique
from tests.commands import refused_start, run
from tests.patience import eventually
from tests.server import RunningServer, database_url, running_service

_VERSION = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[RunningServer]:
    """The service with TLS, which wants certificates of its clients."""
    arguments = [*authority.sign("server").arguments, "--tls-client-ca", str(authority.file)]
    with (
        database_url("sqlite") as connection,
        running_service(
            connection,
            workers=1,
            arguments=arguments,
            environment={"OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS": "0"},
        ) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def client(authority: Authority) -> Iterator[requests.Session]:
    """Somebody with a certificate."""
    pair = authority.sign("client")
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(authority.file)
        session.cert = (str(pair.certificate), str(pair.key))
        session.headers.update(_VERSION)
        yield session


def connected(server: RunningServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60)
    return context.wrap_socket(plain, server_hostname="localhost")


def serial(server: RunningServer, authority: Authority) -> int:
    """The number of the certificate that the service shows now."""
    context = ssl.create_default_context(cafile=authority.file)
    with connected(server, context) as wire:
        return int((wire.getpeercert() or {})["serialNumber"], 16)


def number_in(pair: Pair) -> int:
    shown = ssl._ssl._test_decode_cert(str(pair.certificate))  # type: ignore[attr-defined]
    return int(shown["serialNumber"], 16)


def test_requests_and_long_bodies_and_answers_pass(server, client):
    url = server.url
    made = client.put(f"{url}/traits/{custom()}", timeout=60)
    assert (made.status_code, made.headers["Location"].partition(":")[0]) == (201, "https")
    names = [unique() for _ in range(300)]
    for name in names:
        assert client.post(f"{url}/resource_providers", json={"name": name}, timeout=60).status_code == 200
    listed = client.get(f"{url}/resource_providers", timeout=60)
    assert {each["name"] for each in listed.json()["resource_providers"]} >= {*names}
    # More than TLS sends in one piece, in both directions.
    assert len(listed.content) > 3 * 16 * 1024
    body = b'{"name": "%b"}' % unique().encode() + b" " * 1_000_000
    headers = {"Content-Type": "application/json"}
    assert client.post(f"{url}/resource_providers", data=body, headers=headers, timeout=60).status_code == 200


def test_without_a_certificate_only_probes_are_answered(server, authority):
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(authority.file)
        for path in ("/livez", "/readyz", "/healthcheck"):
            assert session.get(server.url + path, timeout=60).status_code == 200
        for path in ("/", "/resource_providers", "/metrics", "/livez/../resource_providers"):
            answer = session.get(server.url + path, headers=_VERSION, timeout=60)
            assert answer.status_code == 403
            assert "certificate" in answer.json()["errors"][0]["detail"]


def test_certificates_of_others_are_refused(server, authority, tmp_path):
    pair = Authority(tmp_path, "others").sign("client")
    with requests.Session() as session:
        session.trust_env = False
        session.verify, session.cert = str(authority.file), (str(pair.certificate), str(pair.key))
        with pytest.raises(requests.ConnectionError):
            session.get(server.url + "/livez", timeout=60)


def test_old_versions_and_plain_requests_get_nothing(server, authority, client):
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert not plain.recv(100).startswith(b"HTTP/")
    context = ssl.create_default_context(cafile=authority.file)
    # Clients that would still speak it, too.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"(?i)version"):
        connected(server, context)
    assert client.get(server.url + "/", timeout=60).status_code == 200


def test_many_stalled_handshakes_stop_nobody(server, client):
    port = int(server.url.rpartition(":")[2])
    stalled = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(50)]
    try:
        for wire in stalled[::2]:
            wire.sendall(b"\x16\x03\x01\x02")
        assert client.get(server.url + "/", timeout=60).status_code == 200
    finally:
        for wire in stalled:
            wire.close()


def test_an_answer_ends_with_a_farewell(server, authority):
    context = ssl.create_default_context(cafile=authority.file)
    with connected(server, context) as wire:
        wire.suppress_ragged_eofs = False
        wire.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b""
        # An end without farewell would be an exception: somebody may have cut the answer off.
        while piece := wire.recv(4096):
            said += piece
    assert said.endswith(b"ok")


def test_the_command_line_trusts_whom_it_is_told_to(server, authority):
    pair = authority.sign("operator")
    command = ["--url", server.url, "node", "list", "nobody"]
    trusting = {"PLACEMENT_CACERT": str(authority.file)}
    owner = {"PLACEMENT_CERT": str(pair.certificate), "PLACEMENT_KEY": str(pair.key)}
    assert "TLS: " in run(*command).stderr
    assert "certificate" in run(*command, **trusting).stderr
    trusted = run(*command, **trusting, **owner).stderr
    assert ("nobody" in trusted, "TLS" in trusted) == (True, False)


def test_a_certificate_is_renewed_while_the_service_runs(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, arguments=pair.arguments) as server,
    ):
        first = serial(server, authority)
        assert first == number_in(pair)
        # Nobody tells the service: it looks itself.
        second = number_in(authority.sign("server"))
        assert second != first
        eventually(second, lambda: serial(server, authority))
        # A file that is of no use changes nothing, and is told at once by SIGHUP.
        pair.certificate.write_text("nothing")
        server.process.send_signal(signal.SIGHUP)
        eventually(True, lambda: "Everything stays as it was" in server.log.read_text())
        assert serial(server, authority) == second
        third = number_in(authority.sign("server"))
        server.process.send_signal(signal.SIGHUP)
        eventually(third, lambda: serial(server, authority))


def refused(certificate: Path, key: Path, authority: Path | None = None) -> str:
    """What is said about files that are of no use."""
    with pytest.raises(PlacementError) as told:
        Tls(TlsFiles(str(certificate), str(key), str(authority) if authority else None))
    return str(told.value)


def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path, authority):
    one, other = authority.sign("one"), authority.sign("other")
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.write_text("")
    empty.chmod(0o600)
    assert f"{missing}: No such file" in refused(missing, one.key)
    assert f"{missing}: No such file" in refused(one.certificate, missing)
    assert f"{missing}: No such file" in refused(one.certificate, one.key, missing)
    mismatched = refused(one.certificate, other.key)
    assert f"{other.key} is not the key of the certificate in {one.certificate}" in mismatched
    assert f"{empty}: there is no PEM" in refused(empty, one.key)
    assert f"{empty}: there is no PEM" in refused(one.certificate, empty)
    assert f"{empty}: there is no PEM" in refused(one.certificate, one.key, empty)
    other.key.chmod(0o644)
    assert f"{other.key}: others than its owner may read" in refused(other.certificate, other.key)
    locked = serialization.BestAvailableEncryption(b"secret")
    plain = serialization.load_pem_private_key(one.key.read_bytes(), None)
    one.key.write_bytes(
        plain.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    assert "needs a password" in refused(one.certificate, one.key)


def test_a_key_without_certificate_is_told_before_anything_starts(authority):
    key = str(authority.sign("lonely").key)
    assert refused_start("--auth", "noauth2", "--database", "sqlite://", "--tls-key", key) == (
        "[ssl] cert_file is not set: TLS takes cert_file and key_file, or --tls-cert and --tls-key"
    )


@pytest.mark.parametrize(
    ("owner", "mode", "process", "is_open"),
    [
        (1000, 0o600, 1000, False),
        (1000, 0o640, 1000, True),
        (0, 0o440, 1000, False),
        (0, 0o460, 1000, True),
        (0, 0o444, 1000, True),
        (0, 0o440, 0, True),
    ],
)
def test_root_may_lend_a_secret_to_the_group_of_the_service(monkeypatch, owner, mode, process, is_open):
    monkeypatch.setattr(os, "geteuid", lambda: process)
    status = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert is_open_to_others(status) is is_open


def test_searches_of_callers_who_left_are_noticed(authority, folder):
    """The farewell of TLS is something to read, and yet the caller is gone."""
    pair = authority.sign("watched")
    tls = Tls(TlsFiles(str(pair.certificate), str(pair.key)))
    ours, theirs = socket.socketpair()
    wire = tls.wrap(ours)
    wire.setblocking(False)
    theirs.setblocking(False)
    context = ssl.create_default_context(cafile=authority.file)
    far = context.wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
    for _ in range(10):
        for step in (far.do_handshake, lambda: wire.recv(1)):
            try:
                step()
            except (ssl.SSLWantReadError, BlockingIOError):
                time.sleep(0.01)
    gone = watch_of({"gunicorn.socket": wire})
    assert gone is not None
    assert not gone()
    far.send(b"more")
    assert not gone()
    far.close()
    eventually(True, gone)
    wire.close()


def test_what_a_slow_reader_has_taken_of_an_encrypted_answer_counts(authority: Authority):
    """A client that goes on reading is not cut off, however long the answer is."""
    pair = authority.sign("slow")
    tls = Tls(TlsFiles(str(pair.certificate), str(pair.key)))
    ours, theirs = socket.socketpair()
    wire = tls.wrap(ours)
    context = ssl.create_default_context(cafile=str(authority.file))
    with ThreadPoolExecutor(1) as other, wire:
        shaken = other.submit(context.wrap_socket, theirs, server_hostname="localhost")
        wire.do_handshake()
        with shaken.result():
            wire.setblocking(False)
            outgoing = Outgoing(wire, WorkerLimits())
            outgoing.sendall(bytes(50_000_000))
            before = outgoing.waiting
            assert not outgoing.flush()
            assert outgoing.waiting < before
