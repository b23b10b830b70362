"""Messages of refused requests, shortened for reading: the broken rule of JSON Schema is for programs."""

from __future__ import annotations

import re

# How messages about bodies and parameters begin, and the rule that follows them.
_OF_BODIES = "JSON does not validate: "
_OF_QUERIES = "Invalid query string parameters: "
_RULE = "  Failed validating "
_KNOWN = ". Parameters of the Placement API: "
_REGEXES = re.compile(r"do(?:es)? not match any of the regexes: .*")
_COUNT = "does not match '^[1-9][0-9]*$'"
_PLACE = re.compile(r"  On instance((?:\[[^\]]*\])+):")
_PARTS = re.compile(r"\['?([^\]']*)'?\]")


def without_schema(message: str) -> str:
    """Return a message with the field in front and without the schema that was broken."""
    shown, broken, rule = message.partition(_RULE)
    if not broken:
        return message
    shown = _REGEXES.sub("is no parameter of this request", shown)
    shown = shown.replace(_COUNT, "is no whole number from 1")
    shown = shown.removeprefix(_OF_BODIES).removeprefix(_OF_QUERIES)
    place = _PLACE.search(rule)
    field = ".".join(_PARTS.findall(place[1])) if place else ""
    _, more, known = rule.partition(_KNOWN)
    return (f"{field}: {shown}" if field else shown) + more + known
