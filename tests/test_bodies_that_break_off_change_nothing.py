"""A body that does not arrive whole, or is not framed as HTTP has it, is refused, and nothing is stored."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from tests.kubernetes import node_manifests
from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
CLUSTER = "/ext/v1/clusters/broken"


def sent(
    server: RunningServer, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, str]:
    """Status and text of the answer to exactly these bytes, after which nothing more is sent."""
    address = urlsplit(server.url)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in {**HEADERS, **headers}.items()]
    with socket.create_connection(
        (str(address.hostname), int(address.port or 80)), timeout=PATIENCE_SECONDS
    ) as wire:
        wire.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        wire.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), text.decode()


def get(server: RunningServer, path: str) -> requests.Response:
    return requests.get(server.url + path, headers=HEADERS, timeout=PATIENCE_SECONDS)


def test_json_that_breaks_off_is_not_carried_out(served):
    headers = {"Content-Type": "application/json", "Content-Length": "500"}
    status, text = sent(served, "POST", "/resource_classes", headers, b'{"name": "CUSTOM_CUT"}')
    assert status == 400
    assert "breaks off after 22 of 500 bytes" in text
    assert get(served, "/resource_classes/CUSTOM_CUT").status_code == 404


def test_manifests_that_break_off_are_not_imported(served):
    """The first document alone is a node, but not the one that was meant."""
    first, *rest = (yaml.safe_dump(each).encode() for each in node_manifests("n1").values())
    whole = b"---\n".join([first, *rest])
    assert requests.put(served.url + CLUSTER, headers=HEADERS, timeout=PATIENCE_SECONDS).status_code == 201
    headers = {"Content-Type": "application/yaml", "Content-Length": str(len(whole))}
    assert sent(served, "PUT", f"{CLUSTER}/nodes/n1", headers, first)[0] == 400
    assert get(served, f"{CLUSTER}/nodes/n1").status_code == 404
    assert sent(served, "PUT", f"{CLUSTER}/nodes/n1", headers, whole)[0] == 201


@pytest.mark.parametrize(
    "body", [b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"9\r\n{}\r\n", b"2\r\n{}xx"]
)
def test_chunks_that_are_none_are_refused(served, body):
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    status, text = sent(served, "POST", "/resource_classes", headers, body)
    assert status == 400, text
