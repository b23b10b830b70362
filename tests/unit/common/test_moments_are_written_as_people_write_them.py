"""Times of filters: words, clock times, how long ago, and ISO 8601; all in UTC."""

from __future__ import annotations

import datetime

import pytest

from placement.common.moments import moment_of

NOW = datetime.datetime(2026, 3, 1, 13, 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-01T13:30"),
        ("today", "2026-03-01T00:00"),
        ("yesterday", "2026-02-28T00:00"),
        ("yesterday 14:00", "2026-02-28T14:00"),
        ("today 14:00", "2026-03-01T14:00"),
        ("13:00", "2026-03-01T13:00"),
        ("9:05:30", "2026-03-01T09:05:30"),
        ("14:00", "2026-02-28T14:00"),
        ("2h", "2026-03-01T11:30"),
        ("90 s ago", "2026-03-01T13:28:30"),
        ("1w", "2026-02-22T13:30"),
        ("2026-01-31", "2026-01-31T00:00"),
        ("2026-01-31 12:00", "2026-01-31T12:00"),
        ("2026-01-31T12:00Z", "2026-01-31T12:00"),
        ("2026-01-31T12:00+02:00", "2026-01-31T10:00"),
        ("2026-01-31T12:00 02:00", "2026-01-31T10:00"),
        ("2026-01-31T12:00:00.5 0200", "2026-01-31T10:00:00.5"),
    ],
)
def test_a_moment_is_understood(text: str, expected: str):
    assert moment_of(text, NOW) == datetime.datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    "text", ["", " ", "tomorrow", "25:00", "yesterday 7", "2x", "999999w", "0001-01-01T00:00+01:00", "14:61"]
)
def test_other_words_are_refused(text: str):
    with pytest.raises(ValueError, match=r"."):
        moment_of(text, NOW)
