"""Translation requests and answers as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from placement.dialects.nova.errors import Code, Problems, shown
from placement.dialects.nova.flavor import Flavor, ImageProperties, Options
from placement.dialects.nova.groups import FlavorGroup
from placement.dialects.nova.translation import Translation, translate

_REQUIRED_FLAVOR_FIELDS = ("vcpus", "memory_mb")
_CODE_BY_PART: Mapping[str, Code] = {
    "flavor": "flavor_invalid",
    "image": "image_invalid",
    "options": "options_invalid",
}


def translate_document(document: object) -> Translation:
    """Translate `{"flavor": {...}, "image": {...}, "options": {...}}`; image and options may be absent.

    The fields are those of Flavor and Options; image maps property names to texts. Raises FlavorRefused.
    """
    flavor, image, options = read_document(document)
    return translate(flavor, image, options)


def read_document(document: object) -> tuple[Flavor, ImageProperties, Options]:
    """The parts of a translation request; raises FlavorRefused for a missing or unknown field.

    Types and ranges of the values are checked by the translation.
    """
    problems = Problems()
    parts = _object(document, "request", "flavor_invalid", problems)
    for name in parts:
        if name not in _CODE_BY_PART:
            problems.add("flavor_invalid", f"{shown(name)}: is no part of a translation request")
    flavor, image, options = (
        _object({} if parts.get(name) is None else parts[name], name, code, problems)
        for name, code in _CODE_BY_PART.items()
    )
    _check_fields(flavor, "flavor", Flavor, problems)
    _check_fields(options, "options", Options, problems)
    for name in _REQUIRED_FLAVOR_FIELDS:
        if name not in flavor:
            problems.add("flavor_invalid", f"flavor.{name}: is missing")
    problems.raise_if_any()
    return Flavor(**flavor), image, Options(**options)


def translation_document(translation: Translation) -> dict[str, object]:
    """The answer as JSON values: lists for tuples, empty parts of groups left out."""
    cells = translation.cells
    return {
        "groups": {suffix: _group(group) for suffix, group in translation.groups.items()},
        "group_policy": translation.group_policy,
        "root_required": list(translation.root_required),
        "same_subtree": [list(suffixes) for suffixes in translation.same_subtree],
        "querystring": translation.querystring,
        "fallback_querystring": translation.fallback_querystring,
        "microversion": translation.microversion,
        "cpu_policy": translation.cpu_policy,
        "thread_policy": translation.thread_policy,
        "cells": None
        if cells is None
        else [
            {
                "id": cell.id,
                "cpuset": list(cell.cpuset),
                "pcpuset": list(cell.pcpuset),
                "memory": cell.memory_mb,
            }
            for cell in cells
        ],
        "dedicated_cpus": translation.dedicated_cpus,
        "warnings": list(translation.warnings),
    }


def _group(group: FlavorGroup) -> dict[str, object]:
    parts: dict[str, object] = {
        "resources": dict(group.resources),
        "required": sorted(group.required),
        "forbidden": sorted(group.forbidden),
    }
    return {name: part for name, part in parts.items() if part}


def _object(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value)
    problems.add(code, f"{name}: must be an object")
    return {}


def _check_fields(
    part: Mapping[str, object], name: str, shape: type[Flavor] | type[Options], problems: Problems
) -> None:
    known = {field.name for field in fields(shape)}
    for field_name in part:
        if field_name not in known:
            message = f"{name}: {shown(field_name)} is none of its fields {', '.join(sorted(known))}"
            problems.add(_CODE_BY_PART[name], message)
