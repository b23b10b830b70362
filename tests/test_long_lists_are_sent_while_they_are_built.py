"""A list too long to be built at once comes in pieces; put together it is what a short one would be."""

from __future__ import annotations

import orjson
from flask import Flask

from placement.http import context
from tests.client import Client


def test_pieces_make_the_same_bytes(application: Flask, api: Client, monkeypatch):
    for number in range(25):
        api.provider(f"host-{number:02}", VCPU=1)
    for version in ("1.0", "1.14", "1.39"):
        whole = api.at(version).get("/resource_providers")
        for together in (1, 7, 24):
            monkeypatch.setattr(context, "_ITEMS_AT_ONCE", together)
            pieces = api.at(version).get("/resource_providers")
            assert "Content-Length" not in pieces.headers
            assert pieces.data == whole.data
            assert pieces.content_type == whole.content_type
            assert pieces.headers.get("Last-Modified") == whole.headers.get("Last-Modified")
        monkeypatch.undo()
        assert whole.headers["Content-Length"] == str(len(whole.data))


ENVIRONMENT = {context.ENVIRONMENT_KEY: context.RequestContext("req-x"), "REMOTE_ADDR": "127.0.0.1"}


def test_only_what_is_asked_for_is_built(application: Flask):
    built = []

    def render(number: int) -> int:
        built.append(number)
        return number

    with application.test_request_context("/", base_url="http://localhost", environ_overrides=ENVIRONMENT):
        application.preprocess_request()
        response = context.list_response("numbers", range(3500), render)
    pieces = response.iter_encoded()
    assert next(pieces).startswith(b'{"numbers":[0,1,')
    assert len(built) == 1000
    rest = b"".join(pieces)
    assert orjson.loads(b'{"numbers":[0' + rest[rest.index(b",1000,") :])["numbers"][-1] == 3499
