"""`hw:mem_page_size` and `hw_mem_page_size`: a page size makes guest NUMA cells."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placement.dialects.nova.errors import Problems, shown
from placement.dialects.nova.flavor import ImageProperties, given, integer

FLAVOR_KEY = "hw:mem_page_size"
IMAGE_KEY = "hw_mem_page_size"

_OPEN_TO_IMAGES = ("any", "large")
_WORDS = ("small", *_OPEN_TO_IMAGES)
_WITH_UNIT = re.compile(r"\+?(?P<number>[0-9]{0,18}\.?[0-9]{1,18})(?:[KMGTPEZYRQ]i?)?(?:b|bit|B)")


def has_page_size(extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems) -> bool:
    """Whether a page size is set; an image may set one only under a flavor that says any or large.

    Adds `page_size_invalid` or `page_size_forbidden`. Source: nova-flavors.md, "Page size".
    """
    ours, theirs = given(extra_specs, FLAVOR_KEY), given(image, IMAGE_KEY)
    if ours is not None:
        _check(FLAVOR_KEY, ours, problems)
    if theirs is not None:
        if ours in _OPEN_TO_IMAGES:
            _check(IMAGE_KEY, theirs, problems)
        elif ours is None or _is_page_size(ours):
            problems.add(
                "page_size_forbidden",
                f"{IMAGE_KEY}: allowed only if {FLAVOR_KEY} of the flavor is any or large",
            )
    return ours is not None


def _check(key: str, text: str, problems: Problems) -> None:
    if not _is_page_size(text):
        expected = "small, large, any, a number of KiB, or a number with a unit such as 2MB"
        problems.add("page_size_invalid", f"{key}: {shown(text)} is none of {expected}")


def _is_page_size(text: str) -> bool:
    number = integer(text)
    if text in _WORDS or number is not None:
        return number is None or number > 0
    match = _WITH_UNIT.fullmatch(text)
    return match is not None and float(match["number"]) > 0
