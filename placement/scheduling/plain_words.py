"""What Koordinator's reasons mean, for people who do not know its source code."""

from __future__ import annotations

import re

_UNALIGNED = "Unaligned NUMA Hint cause "
_HINT = re.compile(r"([^ ,]+) prefer \[[01 ]*\] among \[([01 ]*)\]")


def in_plain_words(reason: str) -> str:
    """The reason, with what it means behind it if it needs that."""
    if not reason.startswith(_UNALIGNED):
        return reason
    places = "; ".join(f"{resource} fits on {_places(masks)}" for resource, masks in _HINT.findall(reason))
    return f"{reason} ({places}; the NUMA policy of the pod or of the node admits none of that)"


def _places(masks: str) -> str:
    """Sets of NUMA nodes, given as binary numbers whose last digit is NUMA node 0."""
    sets = [[numa for numa, digit in enumerate(reversed(mask)) if digit == "1"] for mask in masks.split()]
    return " or ".join(f"NUMA node{'s' * (len(ids) > 1)} {'+'.join(map(str, ids))}" for ids in sets)
