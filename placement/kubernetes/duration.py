"""Durations as Go writes them, such as `90s` or `1h30m`."""

from __future__ import annotations

import datetime
import re

from placement.kubernetes.manifest import Field

_PART = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_duration(field: Field) -> datetime.timedelta | None:
    """The duration that stands there; None, and reported, if it is none."""
    text = field.text() or ""
    parts = _PART.findall(text)
    if text == "0" or (parts and "".join(parts) == text):
        try:
            return datetime.timedelta(seconds=sum(map(_seconds, parts)))
        except OverflowError:
            field.complain("is too long")
            return None
    field.complain(f"{text[:60]!r} is no duration such as 90s or 1h30m")
    return None


def _seconds(part: str) -> float:
    unit = part.lstrip("0123456789.")
    return float(part.removesuffix(unit)) * _SECONDS[unit]
