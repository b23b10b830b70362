"""Bodies of allocations and of the reshaper, and the query of usages."""

from __future__ import annotations

import re
from typing import Any

from marshmallow import fields

from placement.api.microversions import Feature
from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import Integer, Mapping, Object, Sequence, String, Uuid, nested, refuse
from placement.api.schemas.providers import AllInventories

_RESOURCES = Mapping(patterns.NAME, Integer(1), least=1, required=True)
_LONGEST_LABEL = 255
# Type names, and what stands for all types or for none.
_CONSUMER_TYPE = "^[A-Z0-9_]+$|^all|^unknown$"


class Mappings(Mapping):
    """Which group got which providers; checked for form, then ignored.

    Keys without any suffix character, such as that of the unsuffixed group, are taken unchecked.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("[a-zA-Z0-9_-]{1,64}", Sequence(Uuid(), least=1), least=1, **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.wrong_type(value)
        if not value:
            refuse("{} should be non-empty", "minProperties")
        return {
            key: nested(key, self.values, providers)
            for key, providers in value.items()
            if re.search(self.key_pattern, key)
        }


def _label(**options: Any) -> fields.Field[Any]:
    return String(1, _LONGEST_LABEL, required=True, **options)


class _ProviderReference(VersionedSchema):
    uuid = Uuid(required=True)


class _ListedAllocation(VersionedSchema):
    resource_provider = Object(_ProviderReference, required=True)
    resources = _RESOURCES


class AllocationsList(VersionedSchema):
    """PUT /allocations/{consumer} before 1.12."""

    allocations = Sequence(Object(_ListedAllocation), least=1, required=True)
    project_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})
    user_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})


class _ProviderAllocation(VersionedSchema):
    # What a GET shows may be sent back; it guards nothing.
    generation = Integer()
    resources = _RESOURCES


class Allocations(VersionedSchema):
    """PUT /allocations/{consumer} from 1.28 on, and each entry of POST /allocations: empty releases."""

    allocations = Mapping(patterns.UUID, Object(_ProviderAllocation), required=True)
    project_id = _label()
    user_id = _label()
    consumer_generation = Integer(
        required=True, nullable=True, metadata={"since": Feature.CONSUMER_GENERATIONS}
    )
    mappings = Mappings(metadata={"since": Feature.MAPPINGS})
    consumer_type = String(1, 255, patterns.NAME, required=True, metadata={"since": Feature.CONSUMER_TYPES})


class FilledAllocations(Allocations):
    """PUT /allocations/{consumer} from 1.12 to before 1.28: something must be claimed."""

    allocations = Mapping(patterns.UUID, Object(_ProviderAllocation), least=1, required=True)


class UsagesQuery(VersionedSchema):
    """GET /usages."""

    project_id = String(1, 255, required=True)
    user_id = String(1, 255)
    consumer_type = String(1, 255, _CONSUMER_TYPE, metadata={"since": Feature.CONSUMER_TYPES})


class Reshape(VersionedSchema):
    """POST /reshaper: whole inventories by provider, whole allocations by consumer."""

    inventories = Mapping(patterns.UUID, Object(AllInventories), least=1, required=True)
    allocations = Mapping(patterns.UUID, Object(Allocations), required=True)
