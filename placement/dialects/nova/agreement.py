"""A setting that flavor and image may both make, if they make the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.dialects.nova.errors import REFUSED, Problems, shown
from placement.dialects.nova.flavor import ImageProperties, given


def agreed_value(
    extra_specs: Mapping[str, str],
    image: ImageProperties,
    keys: tuple[str, str],
    values: Sequence[str],
    problems: Problems,
) -> str | None:
    """The value of the (flavor key, image key) pair, None if neither is set, REFUSED after a problem.

    Adds `flavor_image_conflict` if the two differ and `value_invalid` for a value that is not in the list.
    Source: nova-flavors.md, "Optional additions".
    """
    found_before = len(problems)
    ours, theirs = given(extra_specs, keys[0]), given(image, keys[1])
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{keys[0]}: {shown(ours)} differs from {keys[1]} {shown(theirs)} of the image"
        problems.add("flavor_image_conflict", message)
    for key, text in zip(keys, (ours, theirs), strict=True):
        if text is not None and text not in values:
            problems.add("value_invalid", f"{key}: {shown(text)} is none of {', '.join(values)}")
    return REFUSED if len(problems) > found_before else ours or theirs
