"""However a request is cut into pieces it is understood; what could be understood in two ways is refused."""

from __future__ import annotations

import pytest

from tests.client import unique
from tests.hostile import KNOWN, Wire, chunked, request
from tests.server import RunningServer

JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


def test_a_request_may_come_byte_by_byte(served: RunningServer):
    name = unique()
    with Wire(served.url) as wire:
        for byte in request("POST", "/resource_providers", b'{"name": "%b"}' % name.encode(), JSON):
            wire.send(bytes([byte]))
        answer = wire.answer()
    assert answer.status == 200
    assert answer.json["name"] == name


def test_several_requests_may_come_at_once(served: RunningServer):
    body = b'{"name": "%b"}' % unique().encode()
    with Wire(served.url) as wire:
        wire.send(
            request("POST", "/resource_providers", body, JSON),
            request("POST", "/resource_providers", chunked(b"{", b"}"), JSON, CHUNKED, length=False),
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /traits HTTP/1.1\r\nHost: localhost\r\n{KNOWN}\r\n",
        )
        assert [wire.answer().status for _ in range(4)] == [200, 400, 200, 200]
        wire.get("/")
        assert wire.answer().status == 200


def test_a_connection_is_kept_open_unless_somebody_wants_it_closed(served: RunningServer):
    with Wire(served.url) as wire:
        for _ in range(3):
            assert wire.get("/traits").answer().headers["connection"] == "keep-alive"
        assert wire.get("/traits", "Connection: close\r\n").answer().headers["connection"] == "close"
        assert wire.ends()
    with Wire(served.url) as wire:
        assert wire.send("GET / HTTP/1.0\r\n\r\n").answer().headers["connection"] == "close"
        assert wire.ends()


def test_who_expects_to_be_asked_for_the_body_is_asked(served: RunningServer):
    body = b'{"name": "%b"}' % unique().encode()
    whole = request("POST", "/resource_providers", body, JSON, "Expect: 100-continue")
    with Wire(served.url) as wire:
        wire.send(whole[: -len(body)])
        assert wire.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert wire.send(body).answer().status == 200
    with Wire(served.url) as wire:
        head = f"POST /traits HTTP/1.1\r\nHost: localhost\r\n{KNOWN}"
        head += "Content-Length: 99999999\r\nExpect: 100-continue"
        assert wire.send(head, "\r\n\r\n").answer().status == 413


def test_who_has_sent_all_may_close_that_side(served: RunningServer):
    with Wire(served.url) as wire:
        wire.get("/traits")
        wire.finish_sending()
        assert wire.answer().status == 200
        assert wire.ends()


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: +2",
        "Content-Length: -2",
        "Content-Length: 2, 2",
        "Content-Length: 0x2",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "X: y\n\r\nTransfer-Encoding: chunked",
        "Host: a\r\nHost: b",
        "X\x00: y",
        "no colon",
    ],
)
def test_what_could_be_understood_in_two_ways_is_refused(served: RunningServer, headers: str):
    """And nothing behind it is taken for a request."""
    with Wire(served.url) as wire:
        wire.send(
            f"POST /resource_providers HTTP/1.1\r\nHost: localhost\r\n{KNOWN}{headers}\r\n\r\n{{}}",
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        answer = wire.answer()
        assert answer.status in (400, 501)
        assert answer.error
        assert wire.ends()


@pytest.mark.parametrize(
    "line",
    [
        "GET",
        "GET /",
        "GET / HTTP/9.9",
        "get / HTTP/1.1",
        "G\x00T / HTTP/1.1",
        "GET /\xff HTTP/1.1",
        "\r\n",
        "\x16\x03\x01",
    ],
)
def test_lines_that_are_no_requests_are_refused(served: RunningServer, line: str):
    with Wire(served.url) as wire:
        assert wire.send(f"{line}\r\nHost: localhost\r\n\r\n").answer().status == 400
        assert wire.ends()


@pytest.mark.parametrize("path", ["/", "/resource_providers", "/healthcheck"])
def test_a_request_of_http_1_1_names_its_host(served: RunningServer, path: str):
    with Wire(served.url) as wire:
        answer = wire.send(f"GET {path} HTTP/1.1\r\n{KNOWN}\r\n").answer()
        assert answer.status == 400
        assert "Host" in answer.error["detail"]
        assert wire.ends()
    with Wire(served.url) as wire:
        assert wire.send(f"GET {path} HTTP/1.0\r\n{KNOWN}\r\n").answer().status == 200


def test_no_answer_is_taken_for_another_media_type(served: RunningServer):
    for path in (
        "/",
        "/resource_providers",
        "/nothing",
        "/healthcheck",
        "/metrics",
        "/ui/",
        f"/?{'x' * 80_000}",
    ):
        with Wire(served.url) as wire:
            assert wire.get(path).answer().headers["x-content-type-options"] == "nosniff", path


def test_queries_of_64_kib_are_read_and_longer_lines_refused(served: RunningServer):
    with Wire(served.url) as wire:
        names = ",".join(f"in:{'A' * 36}" for _ in range(5))
        path = f"/resource_providers?name={'x' * (64 * 1024 - len(names) - 5)}"
        assert wire.get(path).answer().status == 200
        assert wire.get(f"/?{'x' * 9000}").answer().status == 200
        assert wire.get(f"/?{'x' * 80_000}").answer().status == 414
    with Wire(served.url) as wire:
        wire.send("GET / HTTP/1.1\r\n", "X-Long: y\r\n" * 20_000)
        assert wire.answer().status == 431


def test_chunked_bodies_count_as_others(served: RunningServer):
    cluster = f"/ext/v1/clusters/{unique()}"
    with Wire(served.url) as wire:
        for description in (b'{"descrip', b"tion", b'": "a"}'), (b'{"description": "b"}',):
            wire.send(request("PUT", cluster, chunked(*description), JSON, CHUNKED, length=False))
            answer = wire.answer()
            assert answer.status in (200, 201)
            assert answer.json["description"] == ("a" if len(description) == 3 else "b")
        wire.send(request("PUT", cluster, chunked(b"{} x"), JSON, CHUNKED, length=False))
        assert wire.answer().status == 400
        wire.send(request("PUT", cluster, chunked(), JSON, CHUNKED, length=False))
        assert wire.answer().status == 200


def test_a_chunked_body_beyond_the_limit_is_refused_and_not_cut(served: RunningServer):
    name = unique()
    blanks = b" " * 2**20
    with Wire(served.url) as wire:
        head = request("POST", "/resource_providers", b"", JSON, CHUNKED, length=False)
        wire.send(head, b"10\r\n" + b'{"name": "' + name[:4].encode() + b'"}' + b"\r\n")
        for _ in range(33):
            wire.send(b"%x\r\n%b\r\n" % (len(blanks), blanks))
        wire.send(b"7\r\ngarbage\r\n0\r\n\r\n")
        assert wire.answer().status == 413
    with Wire(served.url) as wire:
        found = wire.get(f"/resource_providers?name={name[:4]}").answer()
        assert found.json == {"resource_providers": []}


@pytest.mark.parametrize("path", ["/ui/sign-in", "/%75i/sign-in"])
def test_a_form_is_refused_before_it_is_received(served: RunningServer, path: str):
    """Strangers may send forms, so these are bounded before a body of the API is."""
    form = "Content-Type: application/x-www-form-urlencoded"
    with Wire(served.url) as wire:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{form}\r\nContent-Length: {2**20 + 1}\r\n\r\n"
        # Not a byte of the form is sent.
        assert wire.send(head).answer().status == 413
    with Wire(served.url) as wire:
        wire.send(request("POST", path, b"", form, CHUNKED, length=False))
        for _ in range(5):
            wire.send(b"40000\r\n" + b"a=1&" * 2**16 + b"\r\n")
        assert wire.answer().status == 413


def test_chunks_of_a_byte_are_refused_when_they_get_too_many(served: RunningServer):
    with Wire(served.url) as wire:
        wire.send(request("POST", "/resource_providers", b"", JSON, CHUNKED, length=False))
        for _ in range(100):
            wire.send(b"1\r\n \r\n" * 1000)
        answer = wire.answer()
        assert answer.status == 400
        assert "too small" in answer.error["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"2\r\n{}XX0\r\n\r\n",
        b"2\r\n{}\n\n0\r\n\r\n",
        b"2\r\n{}\r0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2;a\rb\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\n\r\n",
        b"2\r\n{}\r\n0\r\n\n",
        b"2\r\n{}\r\n0\r\nX: y\n\r\n",
        b"2\r\n{}\r\n0\r\nX: y\rZ: y\r\n\r\n",
    ],
)
def test_chunks_that_are_not_framed_exactly_are_refused(served: RunningServer, body: bytes):
    """And nothing behind them is taken for a request."""
    with Wire(served.url) as wire:
        head = request("PUT", f"/ext/v1/clusters/{unique()}", b"", JSON, CHUNKED, length=False)
        wire.send(head, body, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = wire.answer()
        assert answer.status == 400
        assert "chunk" in answer.error["detail"]
        assert wire.ends()


def test_line_breaks_of_chunks_may_come_in_pieces(served: RunningServer):
    with Wire(served.url) as wire:
        wire.send(request("PUT", f"/ext/v1/clusters/{unique()}", b"", JSON, CHUNKED, length=False))
        for byte in b"1;x=y\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n":
            wire.send(bytes([byte]))
        assert wire.answer().status == 201
        assert wire.get("/").answer().status == 200


def test_a_client_that_leaves_in_the_middle_harms_nobody(served: RunningServer):
    for sent in ("", "GET", "GET / HTTP/1.1\r\n", request("PUT", "/traits/X", b"{}", JSON)[:-1]):
        with Wire(served.url) as wire:
            wire.send(sent)
    with Wire(served.url) as wire:
        assert wire.get("/").answer().status == 200
