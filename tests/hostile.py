"""Clients that send what they like, when they like: raw bytes over sockets of their own."""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

# Patience, not speed.
PATIENCE_SECONDS = 60
KNOWN = "X-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n"


@dataclass(frozen=True)
class Answer:
    """What came back, as far as it is an answer of HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The one error of an answer that has the shape of errors."""
        (error,) = self.json["errors"]
        assert error["status"] == self.status
        assert error["title"]
        assert error["request_id"] == self.headers["x-openstack-request-id"]
        return error


class Wire:
    """A connection to a service, without any manners."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection(
            (str(address.hostname), int(address.port or 80)), timeout=PATIENCE_SECONDS
        )
        self._received = bytearray()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *pieces: bytes | str) -> Wire:
        """Send exactly this; a server that has closed the connection is no failure here."""
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                self._socket.sendall(piece.encode("latin-1") if isinstance(piece, str) else piece)
        return self

    def get(self, path: str, more: str = "") -> Wire:
        """Send a whole GET."""
        return self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{KNOWN}{more}\r\n")

    def finish_sending(self) -> None:
        """Say that nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> Answer:
        """The next answer. Raises EOFError if the connection ends before there is one."""
        while True:
            head, _, rest = self._until(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            self._received = rest
            if status != 100:
                break
        lines = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self._exactly(int(headers.get("content-length", 0)))
        return Answer(status, headers, body)

    def receive(self, most: int = 65536) -> bytes:
        """Some bytes, none at the end."""
        with suppress(ConnectionResetError):
            return self._socket.recv(most)
        return b""

    def is_open(self) -> bool:
        """Whether the other side has neither answered nor closed."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(PATIENCE_SECONDS)
        return False

    def is_reset(self) -> bool:
        """Whether the other side has given the connection up, though not all that it sent is read."""
        watching = select.poll()
        watching.register(self._socket, 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in watching.poll(0))

    def ends(self) -> bool:
        """Whether the other side closes the connection without sending more."""
        return not self._received and self.receive() == b""

    def narrow(self) -> Wire:
        """Take only little of an answer before it is read."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return self

    def close(self) -> None:
        """The end."""
        self._socket.close()

    def _until(self, end: bytes) -> tuple[bytearray, bytearray, bytearray]:
        while end not in self._received:
            self._more()
        return self._received.partition(end)

    def _exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            self._more()
        body, self._received = bytes(self._received[:count]), self._received[count:]
        return body

    def _chunks(self) -> Iterable[bytes]:
        while True:
            size, _, self._received = self._until(b"\r\n")
            piece = self._exactly(int(size, 16) + 2)
            if piece == b"\r\n":
                return
            yield piece[:-2]

    def _more(self) -> None:
        data = self.receive()
        if not data:
            raise EOFError(f"the connection ended after {bytes(self._received[:200])!r}")
        self._received += data


def chunked(*pieces: bytes) -> bytes:
    """The pieces as the chunks of a body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def request(
    method: str, path: str, body: bytes, *headers: str, length: bool = True, known: str = KNOWN
) -> bytes:
    """A whole request with a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *known.strip().split("\r\n"), *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def page_session(url: str, token: str) -> str:
    """The value of the cookie of a browser that has signed in to the pages with the token."""
    with Wire(url) as wire:
        form = wire.send(request("GET", "/ui/sign-in", b"", known="Accept: text/html", length=False)).answer()
        cookie = form.headers["set-cookie"].partition(";")[0]
        key = re.findall(r'name="form_key" value="([0-9a-f]{64})"', form.body.decode())[0]
        fields = urlencode({"form_key": key, "token": token}).encode()
        kind = "Content-Type: application/x-www-form-urlencoded"
        sent = request("POST", "/ui/sign-in", fields, f"Cookie: {cookie}", kind, known="Connection: close")
        answer = wire.send(sent).answer()
        assert answer.status == 303, answer.body
        return answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
