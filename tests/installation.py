"""Providers brought into a running service for a while, with their usage, and taken out again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from placement.engine.domain.inventories import Inventory
from tests.naive import NaiveProvider
from tests.service import Service

_CUSTOM = "CUSTOM_"


@contextmanager
def installed(service: Service, providers: Sequence[NaiveProvider]) -> Iterator[None]:
    """The providers, parents before children, exist in the service as long as the block runs.

    They are named after their uuids, which therefore have to be new to the service. Their usage is held by
    one consumer. Custom traits and classes stay behind, somebody else may use them by then.
    Raises ServiceError.
    """
    with ExitStack() as removals:
        ensure_custom_names(service, providers)
        for provider in providers:
            _create(service, provider)
            removals.callback(service.must, "DELETE", f"/resource_providers/{provider.uuid}")
            _describe(service, provider)
        if any(provider.used for provider in providers):
            consumer = str(uuid.uuid4())
            _use(service, consumer, providers)
            removals.callback(service.must, "DELETE", f"/allocations/{consumer}")
        yield


def ensure_custom_names(service: Service, providers: Sequence[NaiveProvider]) -> None:
    """Create the custom traits and resource classes of the providers where they are missing."""
    traits = {name for provider in providers for name in provider.traits}
    classes = {name for provider in providers for name in provider.inventories}
    for kind, names in (("traits", traits), ("resource_classes", classes)):
        for name in sorted(names):
            if name.startswith(_CUSTOM):
                service.must("PUT", f"/{kind}/{name}")


def _create(service: Service, provider: NaiveProvider) -> None:
    body = {"uuid": provider.uuid, "name": provider.uuid, "parent_provider_uuid": provider.parent}
    service.must("POST", "/resource_providers", body)


def _describe(service: Service, provider: NaiveProvider) -> None:
    if provider.inventories:
        _replace(service, provider, "inventories", _records(provider.inventories))
    if provider.traits:
        _replace(service, provider, "traits", sorted(provider.traits))
    if provider.aggregates:
        _replace(service, provider, "aggregates", sorted(provider.aggregates))


def _replace(service: Service, provider: NaiveProvider, what: str, value: Any) -> None:
    path = f"/resource_providers/{provider.uuid}"
    generation = service.must("GET", path)["generation"]
    service.must("PUT", f"{path}/{what}", {what: value, "resource_provider_generation": generation})


def _records(inventories: Mapping[str, Inventory]) -> dict[str, dict[str, Any]]:
    return {name: asdict(inventory) for name, inventory in inventories.items()}


def _use(service: Service, consumer: str, providers: Sequence[NaiveProvider]) -> None:
    """Allocate under roomy inventories and put the real ones back, which may be too small for the usage."""
    users = [provider for provider in providers if provider.used]
    for provider in users:
        roomy = {name: Inventory(total=amount) for name, amount in provider.used.items()}
        _replace(service, provider, "inventories", _records({**provider.inventories, **roomy}))
    service.must(
        "PUT",
        f"/allocations/{consumer}",
        {
            "allocations": {provider.uuid: {"resources": dict(provider.used)} for provider in users},
            "project_id": "cases",
            "user_id": "cases",
            "consumer_type": "INSTANCE",
            "consumer_generation": None,
        },
    )
    for provider in users:
        _replace(service, provider, "inventories", _records(provider.inventories))
