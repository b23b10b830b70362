"""The line of a day: how the use of a class went, as a small picture with its words."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from markupsafe import Markup

from placement.providers.use_history import DAY_SECONDS, SLOT_SECONDS, Point

_WIDTH = DAY_SECONDS // SLOT_SECONDS
_HEIGHT = 100
# Less than two hours would be a stray dash.
_FEWEST = 4
_LINE = Markup(
    '<svg class="day" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"><title>{}</title>'
    '<path d="{}"/></svg>'
)


def day_line(points: Sequence[Point] | None, name: str) -> Markup:
    """Return the line of a day that ends with the last sample, nothing for fewer than four samples.

    It is as high as 100 %, or as the highest sample if that is more. Where samples are missing it has a gap.
    """
    if not points or len(points) < _FEWEST:
        return Markup()
    first, last = points[0], points[-1]
    lowest, highest = min(each.percent for each in points), max(each.percent for each in points)
    steps, before = [], 0
    for taken_at, percent in points:
        x = _WIDTH - (last.taken_at - taken_at) // SLOT_SECONDS
        y = _HEIGHT - _HEIGHT * percent // max(highest, 100)
        # A sample between two gaps is a dot: a line of no length.
        steps.append(f"L{x} {y}" if taken_at - before == SLOT_SECONDS else f"M{x} {y}h0")
        before = taken_at
    is_whole = last.taken_at - first.taken_at >= DAY_SECONDS
    since = "last 24 hours" if is_whole else f"since {_clock(first.taken_at)}"
    words = f"{name}, {since}: {last.percent} % at {_clock(last.taken_at)}, "
    words += f"lowest {lowest} %, highest {highest} %"
    return _LINE.format(_WIDTH, _HEIGHT, words, "".join(steps))


def _clock(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%H:%M UTC")
