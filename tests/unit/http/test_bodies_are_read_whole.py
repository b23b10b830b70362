"""A body has the length that its head names, however little a server gives at a time."""

from __future__ import annotations

import io

import pytest
from flask import Flask

from placement.http import bodies, context
from placement.http.context import RequestContext
from placement.http.errors import HttpError


class Stingy(io.BytesIO):
    """A stream that gives at most three bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size if size is not None and size >= 0 else 3, 3))


def received(sent: bytes, length: str | None, *, ends: bool = False) -> bytes:
    application = Flask("bodies")
    application.config["MAX_CONTENT_LENGTH"] = 20
    environ = {"wsgi.input": Stingy(sent), "wsgi.input_terminated": ends}
    environ |= {} if length is None else {"CONTENT_LENGTH": length}
    with application.test_request_context(environ_overrides=environ):
        context.begin(RequestContext("req-1"))
        return bodies.received()


@pytest.mark.parametrize(
    ("length", "expected"), [("8", b'{"a": 1}'), ("4", b'{"a"'), ("0", b""), (None, b"")]
)
def test_as_much_is_read_as_the_head_says(length: str | None, expected: bytes):
    assert received(b'{"a": 1}', length) == expected


@pytest.mark.parametrize(
    ("length", "status", "message"),
    [
        ("9", 400, "The body breaks off after 8 of 9 bytes"),
        ("21", 413, "Bodies may have 20 bytes"),
        ("9" * 6_000, 400, "The body cannot be read"),
    ],
)
def test_other_lengths_are_refused(length: str, status: int, message: str):
    with pytest.raises(HttpError, match=message) as refused:
        received(b'{"a": 1}', length)
    assert refused.value.status == status


def test_without_a_length_the_end_of_the_stream_counts_where_the_server_marks_it():
    """As with HTTP/2, whose bodies need neither Content-Length nor Transfer-Encoding."""
    assert received(b'{"a": 1}', None, ends=True) == b'{"a": 1}'
    assert received(b'{"a": 1}', "4", ends=True) == b'{"a"'
    with pytest.raises(HttpError, match="Bodies may have 20 bytes") as refused:
        received(b"x" * 21, None, ends=True)
    assert refused.value.status == 413
