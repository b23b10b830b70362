"""Moments as people write them: `yesterday 14:00`, `14:00`, `2h`, or a time of ISO 8601. All are in UTC."""

from __future__ import annotations

import datetime
import re

FORMS = "2026-01-31T12:00Z, yesterday, 14:00, yesterday 14:00 or 2h"
"""Examples of what is understood, for errors and help."""
_AGO = re.compile(r"([0-9]{1,6}) ?([smhdw])( ago)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS = {"today": 0, "yesterday": 1}
_DAY = re.compile(r"(?:(today|yesterday) ?)?(?:([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?)?")
# In a query string a + that was not sent as %2B is a blank.
_LOST_PLUS = re.compile(r"(.*[T ][0-9:.]+) ([0-9]{2}:?[0-9]{2})")


def moment_of(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the moment of a text in UTC without a zone; `now` is the present in the same form.

    A time without a day is its last occurrence, a day without a time its beginning. Raises ValueError.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text):
            return now - datetime.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        if text == "now":
            return now
        if text and (day := _DAY.fullmatch(text)):
            return _on_day(day, now)
        if lost := _LOST_PLUS.fullmatch(text):
            text = f"{lost[1]}+{lost[2]}"
        found = datetime.datetime.fromisoformat(text)
        return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found
    except OverflowError:
        raise ValueError(f"{text} is no time") from None


def _on_day(found: re.Match[str], now: datetime.datetime) -> datetime.datetime:
    """Return a time of today or yesterday. Raises ValueError for an hour or minute that no day has."""
    hour, minute, second = (int(number or 0) for number in found.groups()[1:])
    clock = datetime.time(hour, minute, second)
    moment = datetime.datetime.combine(now.date(), clock)
    if found[1] is None:
        return moment if moment <= now else moment - datetime.timedelta(days=1)
    return moment - datetime.timedelta(days=_DAYS[found[1]])
