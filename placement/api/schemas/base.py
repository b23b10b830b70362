"""Schemas that change with the microversion, and how their findings become one message."""

from __future__ import annotations

import copy
from collections.abc import Mapping as MappingABC
from functools import lru_cache
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, pre_load

from placement.api.microversions import NEWEST, Feature, Microversion
from placement.api.schemas.fields import (
    MOST_KEYS,
    Mapping,
    Object,
    Sequence,
    refuse,
    shown,
)
from placement.api.schemas.json_schema import Path, sentence
from placement.domain.errors import BadRequest, Violation


class VersionedSchema(Schema):
    """A schema whose fields exist from `since` on and up to before `until` (Feature values in metadata)."""

    class Meta:
        unknown = RAISE

    def __init__(self, version: Microversion = NEWEST, **options: Any) -> None:
        self.version = version
        super().__init__(**options)
        for name, field in list(self.fields.items()):
            since: Feature | None = field.metadata.get("since")
            until: Feature | None = field.metadata.get("until")
            if (since and not version.offers(since)) or (until and version.offers(until)):
                for registry in (self.fields, self.load_fields, self.dump_fields):
                    registry.pop(name, None)
            else:
                self.fields[name] = self.load_fields[name] = in_version(field, version)

    @pre_load
    def check_shape(self, data: Any, **_: Any) -> Any:
        """An object with all that is required and nothing that is not known."""
        if not isinstance(data, MappingABC):
            refuse(f"{shown(data)} is not of type 'object'", "type")
        known = {field.data_key or name: field for name, field in self.fields.items()}
        for key, field in known.items():
            if field.required and key not in data:
                refuse(f"{key!r} is a required property", "required")
        strange = sorted(key for key in data if key not in known)
        if strange:
            listed = ", ".join(shown(key) for key in strange[:MOST_KEYS])
            verb = "was" if len(strange) == 1 else "were"
            refuse(
                f"Additional properties are not allowed ({listed} {verb} unexpected)", "additionalProperties"
            )
        return data


def in_version(field: fields.Field[Any], version: Microversion) -> fields.Field[Any]:
    """A copy of the field whose nested schemas are those of the version."""
    field = copy.copy(field)
    if isinstance(field, Object):
        assert isinstance(field.nested, type)
        assert issubclass(field.nested, VersionedSchema)
        field.nested = schema_for(field.nested, version)
    elif isinstance(field, Mapping):
        field.values = in_version(field.values, version)
    elif isinstance(field, Sequence):
        field.items = in_version(field.items, version)
    return field


@lru_cache(maxsize=1024)
def schema_for(schema: type[VersionedSchema], version: Microversion) -> VersionedSchema:
    """The schema as it is in one version."""
    return schema(version)


def load(schema: type[VersionedSchema], version: Microversion, data: Any, prefix: str) -> Any:
    """The validated data. Raises BadRequest with the first violation, its place included."""
    chosen = schema_for(schema, version)
    try:
        return chosen.load(data)
    except ValidationError as error:
        violation = _first(chosen, error.messages)
        raise BadRequest(f"{prefix}{sentence(violation, chosen, data)}") from None


def load_field(field: fields.Field[Any], data: Any, prefix: str) -> Any:
    """Like `load`, for a body that is not an object."""
    try:
        return field.deserialize(data)
    except ValidationError as error:
        violation = _first_of_field(field, error.messages, (), ())
        raise BadRequest(f"{prefix}{sentence(violation, field, data)}") from None


def _first(schema: Schema, messages: Any, schema_path: Path = (), instance_path: Path = ()) -> Violation:
    for key, inner in messages.items():
        if key == "_schema":
            return _placed(inner, schema_path, instance_path)
        field = schema.fields[key]
        name = field.data_key or key
        return _first_of_field(field, inner, (*schema_path, "properties", name), (*instance_path, name))
    raise AssertionError("a validation error without messages")


def _first_of_field(field: Any, messages: Any, schema_path: Path, instance_path: Path) -> Violation:
    if isinstance(messages, list):
        return _placed(messages, schema_path, instance_path)
    if isinstance(field, Object):
        return _first(field.nested, messages, schema_path, instance_path)
    key, inner = next(iter(messages.items()))
    if key == "_schema":
        return _placed(inner, schema_path, instance_path)
    if isinstance(field, Mapping):
        return _first_of_field(
            field.values,
            inner,
            (*schema_path, "patternProperties", field.shown_pattern),
            (*instance_path, key),
        )
    assert isinstance(field, Sequence)
    return _first_of_field(field.items, inner, (*schema_path, "items"), (*instance_path, key))


def _placed(messages: Any, schema_path: Path, instance_path: Path) -> Violation:
    found = messages[0]
    if not isinstance(found, Violation):
        return Violation(str(found), "type", schema_path, instance_path)
    return Violation(found.reason, found.keyword, schema_path, instance_path)
