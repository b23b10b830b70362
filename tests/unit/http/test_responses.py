"""Bodies and headers of answers: short ones at once, long ones in parts, the bytes the same."""

import datetime

import orjson
import pytest
from flask import Flask

from placement.common.microversions import Microversion
from placement.http import context, responses

THEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)


@pytest.fixture
def request_at(monkeypatch):
    """A function that enters a request of a minor version."""
    application = Flask("test")
    entered = []

    def enter(minor, **options):
        environment = {context.ENVIRONMENT_KEY: "req-1"}
        around = application.test_request_context("/", environ_overrides=environment, **options)
        around.push()
        entered.append(around)
        context.begin()
        context.current().version = Microversion(1, minor)

    yield enter
    for around in reversed(entered):
        around.pop()


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 2500])
def test_a_list_has_the_same_bytes_whether_it_is_short_or_long(request_at, count):
    request_at(39)
    answer = responses.list_response("n", range(count), lambda number: {"number": number}, modified=THEN)
    expected = orjson.dumps({"n": [{"number": number} for number in range(count)]})
    assert b"".join(answer.iter_encoded()) == expected
    assert answer.is_streamed is (count > 1000)
    assert answer.headers["Last-Modified"] == "Mon, 06 May 2024 07:08:09 GMT"


def test_a_long_list_is_rendered_while_it_is_read(request_at):
    request_at(39)
    rendered = []
    answer = responses.list_response("n", range(3000), rendered.append)
    assert rendered == []
    pieces = answer.iter_encoded()
    next(pieces)
    assert rendered == list(range(1000))


def test_little_is_sent_at_once_and_much_in_parts(request_at, monkeypatch):
    request_at(39)
    monkeypatch.setattr(responses, "_BUILT_AT_ONCE_BYTES", 5)
    made = []

    def parts():
        for part in (b"abc", b"def", b"ghi", b"jkl"):
            made.append(part)
            yield part

    short = responses.streamed([b"ab", b"cd"])
    assert (short.is_streamed, short.get_data()) == (False, b"abcd")
    long = responses.streamed(parts())
    assert made == [b"abc", b"def"]
    assert long.is_streamed
    assert b"".join(long.iter_encoded()) == b"abcdefghijkl"
    assert long.content_type == "application/json"


def test_the_newest_of_some_times_is_told_and_the_present_of_none():
    later = THEN + datetime.timedelta(days=1)
    assert responses.newest([THEN, None, later]) == later
    before = responses.now()
    assert before <= responses.newest([None]) <= responses.now()
