"""Flavors and images as the `openstack` client prints them with `-f json`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placement.dialects.nova.errors import Code, Problems, shown
from placement.dialects.nova.flavor import Flavor, ImageProperties

_FLAVOR_FIELDS = {
    "vcpus": "vcpus",
    "memory_mb": "ram",
    "root_gb": "disk",
    "ephemeral_gb": "OS-FLV-EXT-DATA:ephemeral",
    "swap_mb": "swap",
}
_ALWAYS_SHOWN = ("vcpus", "memory_mb")
# Older clients print properties as one text: key='value', key2='value2'
_PROPERTY = re.compile(r"\s*(?P<key>[^=,]+)='(?P<text>[^']*)'\s*(?:,|$)")


def flavor_from_openstack_json(document: object) -> Flavor:
    """The flavor that `openstack flavor show -f json` printed; raises FlavorRefused with `flavor_invalid`.

    ram is MiB, disk and ephemeral are GiB, swap is MiB and an empty text when there is none. The extra specs
    are under `properties`, or under `extra_specs` in what the compute API itself answers.
    """
    problems = Problems()
    shown_flavor = _mapping(document, "flavor", "flavor_invalid", problems)
    amounts = {
        name: _amount(shown_flavor.get(key), key, required=name in _ALWAYS_SHOWN, problems=problems)
        for name, key in _FLAVOR_FIELDS.items()
    }
    printed = shown_flavor.get("properties", shown_flavor.get("extra_specs"))
    extra_specs = _extra_specs(printed, problems)
    problems.raise_if_any()
    return Flavor(**amounts, extra_specs=extra_specs)


def image_from_openstack_json(document: object) -> ImageProperties:
    """The image properties that `openstack image show -f json` printed; raises FlavorRefused.

    Only texts are kept: what the client prints as anything else are its own fields, which no flavor rule
    reads.
    """
    problems = Problems()
    properties = _mapping(document, "image", "image_invalid", problems).get("properties")
    texts = _mapping({} if properties is None else properties, "properties", "image_invalid", problems)
    problems.raise_if_any()
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _mapping(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, object]:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    problems.add(code, f"{name}: must be an object, not {shown(value)}")
    return {}


def _amount(value: object, key: str, *, required: bool, problems: Problems) -> int:
    if value in (None, "") and not required:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    problems.add("flavor_invalid", f"{key}: {shown(value)} is no whole number")
    return 0


def _extra_specs(printed: object, problems: Problems) -> dict[str, str]:
    if isinstance(printed, str):
        return _printed_properties(printed, problems)
    specs: dict[str, str] = {}
    for key, text in _mapping(
        {} if printed is None else printed, "properties", "flavor_invalid", problems
    ).items():
        if isinstance(text, str):
            specs[key] = text
        else:
            problems.add("flavor_invalid", f"{key}: {shown(text)} is no text")
    return specs


def _printed_properties(text: str, problems: Problems) -> dict[str, str]:
    specs: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _PROPERTY.match(text, position)
        if match is None:
            problems.add("flavor_invalid", f"properties: {shown(text[position:])} is no key='value'")
            break
        specs[match["key"]] = match["text"]
        position = match.end()
    return specs
