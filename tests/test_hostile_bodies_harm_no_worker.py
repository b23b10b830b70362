"""Odd bodies harm no real worker: none is answered with an error of ours, none that breaks off is stored."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from tests.client import unique
from tests.hostile import Wire, chunked, request
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer

CHUNKED = "Transfer-Encoding: chunked"
JSON, YAML = "application/json", "application/yaml"
MIB = 2**20
POD = json.dumps(pod_manifest(cpu="1")).encode()


def repeated(piece: bytes, size: int) -> bytes:
    return piece * (size // len(piece))


TEXTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t",
    "NUL": b"\0",
    "NUL inside": b'{"name": "a\0b"}',
    "escaped NUL": b'{"name": "a\\u0000b"}',
    "NUL in YAML": b'a: "\\0"',
    "BOM": b"\xef\xbb\xbf{}",
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "UTF-32": '{"name": "a"}'.encode("utf-32"),
    "no UTF-8": b'{"name": "\xff\xfe"}',
    "half a character": b'{"name": "\xe2\x82"}',
    "half a surrogate": b'{"name": "\\ud800"}',
    "both halves": b'{"name": "\\ud83d\\ude00"}',
    "text": b'"text"',
    "number": b"1",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "not a number": b'{"name": NaN}',
    "infinite": b"[Infinity, -Infinity]",
    "huge number": b'{"name": %b}' % (b"9" * 5_000),
    "huge exponent": b'{"name": 1e999999}',
    "64 bits": b'{"name": 18446744073709551615}',
    "beyond 64 bits": b'{"name": 18446744073709551616}',
    "minus": b'{"name": -}',
    "same key twice": b'{"name": "a", "name": "b"}',
    "odd keys": b'{"__proto__": {}, "": {}, "constructor": {}}',
    "garbage behind": b'{"name": "a"} garbage',
    "two documents": b'{"name": "a"}{"name": "b"}',
    "truncated": b'{"name": "a',
    "truncated escape": b'{"name": "\\u00',
    "comma": b'{"name": "a",}',
    "comment": b'{"name": "a" /* b */}',
    "single quotes": b"{'name': 'a'}",
    "deep lists": b"[" * 200_000,
    "deep lists, closed": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 100_000,
    "deep behind a quote": b'["\\"' + b"[" * 200_000,
    "101 levels": b"[" * 101 + b"]" * 101,
    "100 levels": b"[" * 100 + b"]" * 100,
    "brackets in text": json.dumps({"name": "[" * 50_000}).encode(),
    "brackets in a pod": POD.replace(b'"cpu"', b'"%b": "1", "cpu"' % (b"[{" * 500)),
    "many empty lists": b"[" + repeated(b"[],", 31 * MIB) + b"[]]",
    "many zeros": b"[" + repeated(b"0,", 16 * MIB) + b"0]",
    "many objects": b"[" + repeated(b'{"":0},', 8 * MIB) + b"{}]",
    "many quotes": b'"' + repeated(b'\\"', 4 * MIB),
    "a long text": b'"' + b"x" * 20 * MIB + b'"',
    "a long key": b'{"' + b"x" * MIB + b'": 1}',
    "deep place of many": b'{"%b":' % (b"k" * 300) * 90 + b"[" + b"0," * 400_000 + b"0]" + b"}" * 90,
    "deep sequences": b"- " * 40_000 + b"a",
    "deep questions": b"? " * 40_000 + b"a",
    "deep mappings": b"".join(b" " * depth + b"a:\n" for depth in range(1_400)),
    "deep flow": b"{a: " * 40_000,
    "20 KB of brackets": b"[" * 20_000,
    "MiB of brackets": b"[" * MIB,
    "MiB of pairs": repeated(b"[],", MIB),
    "4 MB of items": b"- a\n" * MIB,
    "MiB of items": b"- a\n" * (MIB // 4),
    "MiB of keys": b"".join(b"a%d: 1\n" % number for number in range(90_000)),
    "keys of one hash": b"".join(b"%d: 1\n" % (number * (2**61 - 1)) for number in range(24_000)),
    "MiB of documents": b"---\na\n" * (MIB // 6),
    "many directives": b"".join(b"%%TAG !a%d! x\n" % number for number in range(50_000)),
    "base 60": b"a: " + b"1" + b":59" * 300_000,
    "base 60, broken": b"a: " + b"1" + b":59" * 300_000 + b".5",
    "aliases": b"a: &a [b, b]\nc: &c [*a, *a, *a]\nd: [*c, *c, *c]\n",
    "an alias of itself": b"&a [*a]",
    "merge": b"<<: {a: 1}\nb: 2",
    "python tag": b"!!python/object/apply:os.system [id]",
    "binary": b"a: !!binary //79",
    "set": b"? a\n? b\n",
    "yes as a key": b"yes: 1",
    "tabs": b"a:\n\t- b\n",
    "unclosed quote": b'a: "b',
    "line separators": "a: b\u2028c: d\u0085e: f".encode(),
    "not finite": b"[.nan, .inf, -.inf, 1e400]",
    "compressed": gzip.compress(b'{"name": "a"}'),
}
ROUTES = (
    ("POST", "/resource_providers", JSON),
    ("POST", "/allocations", JSON),
    ("PUT", "/ext/v1/clusters/odd", JSON),
    ("POST", "/ext/v1/clusters/edge/pods/preview", YAML),
    ("PUT", "/ext/v1/clusters/edge/nodes/odd", YAML),
    ("PUT", "/ext/v1/clusters/edge/pods/default/odd", JSON),
    ("POST", "/ext/v1/clusters/edge/extender/filter", JSON),
)


@pytest.fixture(scope="module")
def edge(served: RunningServer) -> RunningServer:
    """The service with a cluster that has a node."""
    for path, body in (("", b""), ("/nodes/n1", json.dumps(node_manifests("n1")).encode())):
        with Wire(served.url) as wire:
            wire.send(request("PUT", f"/ext/v1/clusters/edge{path}", body, f"Content-Type: {JSON}"))
            assert wire.answer().status == 201
    return served


@pytest.mark.parametrize("name", TEXTS)
def test_an_odd_body_is_answered_and_the_worker_lives_on(edge: RunningServer, name: str):
    before = edge.workers()
    text = TEXTS[name]
    for number, (method, path, kind) in enumerate(ROUTES):
        headers = [f"Content-Type: {kind}"]
        if name == "compressed":
            headers.append("Content-Encoding: gzip")
        with Wire(edge.url) as wire:
            if number % 2:
                pieces = [text[at : at + MIB] for at in range(0, len(text), MIB)]
                wire.send(request(method, path, chunked(*pieces), *headers, CHUNKED, length=False))
            else:
                wire.send(request(method, path, text, *headers))
            answer = wire.answer()
            assert answer.status < 500, (method, path, answer)
            if answer.status >= 400:
                assert answer.json["errors"]
                assert len(answer.body) < 100_000
    assert edge.workers() == before


def test_the_examples_are_no_odd_bodies():
    from placement.common import documents

    examples = Path(__file__).resolve().parents[1] / "etc" / "examples"
    texts = [path.read_bytes() for path in examples.rglob("*.yaml")]
    assert len(texts) > 10
    for text in texts:
        assert len(text) < documents.MOST_MANIFEST_BYTES
        assert documents.parse_yaml(text, documents.MOST_MANIFEST_VALUES)


def test_brackets_in_texts_and_comments_do_not_count_as_levels(edge: RunningServer):
    manifest = pod_manifest(cpu="1")
    manifest["metadata"]["annotations"] = {
        "example.com/a": "[" * 300 + '"' + "{" * 300,
        "example.com/b": "- " * 300 + "\n" + "? " * 300,
        "example.com/c": "'\"\\" * 100,
    }
    path = "/ext/v1/clusters/edge/pods/default/brackets"
    commented = b"# " + b"[" * 300 + b"\n" + json.dumps(manifest).encode()
    for text, kind in ((json.dumps(manifest).encode(), JSON), (commented, YAML)):
        with Wire(edge.url) as wire:
            wire.send(request("PUT", path, text, f"Content-Type: {kind}"))
            assert wire.answer().status in (200, 201)


def test_a_text_of_a_manifest_may_be_long(edge: RunningServer):
    manifest = pod_manifest(cpu="1")
    manifest["metadata"]["annotations"] = {unique(): "x" * 900_000}
    with Wire(edge.url) as wire:
        body = json.dumps(manifest).encode()
        wire.send(request("POST", "/ext/v1/clusters/edge/pods/preview", body, f"Content-Type: {YAML}"))
        assert wire.answer().status == 200


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
    missing = get(served, "/resource_classes/CUSTOM_CUT")
    assert (missing.status_code, missing.reason) == (404, "Not Found")


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
