"""Many integers as text at once."""

from __future__ import annotations

import numpy as np
import orjson

from placement.candidates.scoring.columns import Scores

# Percentages and scores are below that; looking a number up is several times as fast as writing it.
_SMALL = 1024
_WRITTEN = np.array([b"%d" % number for number in range(_SMALL)], object)


def to_text(numbers: Scores) -> list[bytes]:
    """The decimal ASCII of each number."""
    if numbers.dtype == object or not len(numbers):
        return [b"%d" % number for number in numbers.tolist()]
    if numbers.min() >= 0 and numbers.max() < _SMALL:
        texts: list[bytes] = _WRITTEN.take(numbers).tolist()
        return texts
    written = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)
    return written[1:-1].split(b",")
