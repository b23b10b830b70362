"""Flavors and images as the `openstack` client prints them with `-f json`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placement.flavors.nova.flavor import Flavor, ImageProperties
from placement.flavors.nova.problems import Code, Problems, shown

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
    """Return the flavor that `openstack flavor show -f json` printed; raises FlavorRefused (flavor_invalid).

    ram is MiB, disk and ephemeral are GiB, swap is MiB and an empty text when there is none. The extra specs
    are under `properties`, or under `extra_specs` in what the compute API itself answers.
    """
    problems = Problems()
    shown_flavor = _mapping(document, "flavor", "flavor_invalid", problems)
    amounts: dict[str, int] = {}
    for name, key in _FLAVOR_FIELDS.items():
        value = shown_flavor.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            amounts[name] = value
        elif value not in (None, "") or name in _ALWAYS_SHOWN:
            problems.add("flavor_invalid", key, f"{shown(value)} is not a whole number")
    printed = shown_flavor.get("properties", shown_flavor.get("extra_specs"))
    extra_specs = _extra_specs(printed, problems)
    problems.raise_if_any()
    return Flavor(**amounts, extra_specs=extra_specs)


def image_from_openstack_json(document: object) -> ImageProperties:
    """Return the image properties that `openstack image show -f json` printed; raises FlavorRefused.

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
    problems.add(code, name, f"must be an object, not {shown(value)}")
    return {}


def _extra_specs(printed: object, problems: Problems) -> dict[str, str]:
    specs: dict[str, str] = {}
    if isinstance(printed, str):
        position = 0
        while position < len(printed.rstrip()):
            match = _PROPERTY.match(printed, position)
            if match is None:
                problems.add(
                    "flavor_invalid", "properties", f"{shown(printed[position:])} is not key='value'"
                )
                break
            specs[match["key"]] = match["text"]
            position = match.end()
        return specs
    given_specs = {} if printed is None else printed
    for key, text in _mapping(given_specs, "properties", "flavor_invalid", problems).items():
        if isinstance(text, str):
            specs[key] = text
        else:
            problems.add("flavor_invalid", key, f"{shown(text)} is not text")
    return specs
