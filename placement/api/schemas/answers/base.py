"""Schemas of what the service sends, and members that many answers have."""

from __future__ import annotations

from typing import Any

from placement.api.microversions import NEWEST, Feature, Microversion
from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import Integer, Mapping, Sequence, String

OPTIONAL = {"optional": True}


class Answer(VersionedSchema):
    """Every member is there in every answer, unless its metadata says `optional`."""

    def __init__(self, version: Microversion = NEWEST, **options: Any) -> None:
        super().__init__(version, **options)
        for field in self.fields.values():
            field.required = not field.metadata.get("optional", False)


def since(feature: Feature, **more: Any) -> dict[str, Any]:
    """Metadata of a member that comes with a feature."""
    return {"since": feature, **more}


def texts(**options: Any) -> Sequence:
    """A list of texts."""
    return Sequence(String(), **options)


def amounts(**options: Any) -> Mapping:
    """Amounts by resource class."""
    return Mapping(patterns.NAME, Integer(), **options)


class Link(Answer):
    """Where something related is."""

    rel = String()
    href = String()


class Error(Answer):
    """What is wrong, in one error or several."""

    status = Integer(400, 599)
    title = String()
    detail = String()
    request_id = String()
    code = String(metadata=since(Feature.ERROR_CODES, optional=True))
    # Of 406 for a microversion that the service does not have.
    max_version = String(metadata=OPTIONAL)
    min_version = String(metadata=OPTIONAL)
