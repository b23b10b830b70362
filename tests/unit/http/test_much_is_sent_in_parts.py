"""Little is sent at once and much in parts: none is made before the one before it was sent."""

import orjson
import pytest
from flask import Flask

from placement.http import answers, context
from placement.http.answers import list_response, streamed


@pytest.fixture(autouse=True)
def within_a_request(embedded_application: Flask):
    given = {context.ENVIRONMENT_KEY: context.RequestContext("req-x"), "REMOTE_ADDR": "127.0.0.1"}
    with embedded_application.test_request_context("/", base_url="http://localhost", environ_overrides=given):
        embedded_application.preprocess_request()
        yield


@pytest.mark.parametrize("count", [0, 1, 1000, 1001])
def test_a_list_has_the_same_bytes_whether_it_is_short_or_long(count):
    answer = list_response("n", range(count), lambda number: {"number": number})
    expected = orjson.dumps({"n": [{"number": number} for number in range(count)]})
    assert b"".join(answer.iter_encoded()) == expected
    assert answer.is_streamed is (count > 1000)


def test_no_more_of_a_long_list_is_built_than_is_asked_for():
    built = []
    pieces = list_response("n", range(3500), lambda n: built.append(n) or n).iter_encoded()
    assert next(pieces).startswith(b'{"n":[0,1,')
    assert len(built) == 1000


def test_little_is_sent_at_once_and_much_in_parts(monkeypatch):
    monkeypatch.setattr(answers, "_BUILT_AT_ONCE_BYTES", 5)
    made = []

    def parts():
        for part in (b"abc", b"def", b"ghi", b"jkl"):
            made.append(part)
            yield part

    short = streamed([b"ab", b"cd"])
    assert (short.is_streamed, short.get_data()) == (False, b"abcd")
    long = streamed(parts())
    assert made == [b"abc", b"def"]
    assert long.is_streamed
    assert b"".join(long.iter_encoded()) == b"abcdefghijkl"
    assert long.content_type == "application/json"
