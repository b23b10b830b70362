"""Bodies of resource providers, their traits and aggregates."""

from placement.api.microversions import Feature
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import (
    Integer,
    NullableUuid,
    Sequence,
    String,
    Uuid,
)

_LONGEST_NAME = 200
_NESTED = {"since": Feature.NESTED_PROVIDERS}


class NewProvider(VersionedSchema):
    """POST /resource_providers."""

    name = String(0, _LONGEST_NAME, required=True)
    uuid = Uuid()
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ChangedProvider(VersionedSchema):
    """PUT /resource_providers/{uuid}."""

    name = String(0, _LONGEST_NAME, required=True)
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ProviderTraits(VersionedSchema):
    """PUT /resource_providers/{uuid}/traits."""

    traits = Sequence(String(1, 255), required=True)
    resource_provider_generation = Integer(required=True)


class ProviderAggregates(VersionedSchema):
    """PUT /resource_providers/{uuid}/aggregates from 1.19 on; before, the bare list."""

    aggregates = Sequence(Uuid(), unique=True, required=True)
    resource_provider_generation = Integer(required=True)


AGGREGATES_LIST = Sequence(Uuid(), unique=True)
