"""Reshaping: inventories of providers and allocations of consumers move together, or not at all.

Only the final state is judged: first inventories are added and changed, then the allocations move, then the
inventories that are not wanted any more are deleted. Source: placement-api.md, "Reshaper".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placement.allocations.replacement import Replacement, attributes_of
from placement.allocations.statements.consumers import AttributeRegistry
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.errors import BadRequest, ConcurrentUpdate, InventoryInUse
from placement.engine.domain.inventories import ProviderInventories
from placement.providers.inventories import InventoryChange, check_capacity, in_use, record_inventories
from placement.providers.statements import contents, names, providers
from placement.providers.statements.providers import LockedProvider
from placement.storage.database import Database, Transaction, run_in_transaction


class Reshaper:
    """A use case that moves inventories and allocations in one transaction."""

    def __init__(self, database: Database, attributes: AttributeRegistry) -> None:
        self._database = database
        self._attributes = attributes

    def reshape(self, inventories: Sequence[ProviderInventories], claims: Sequence[ConsumerClaim]) -> None:
        """Give the providers exactly these records and the consumers exactly these allocations.

        Raises BadRequest for unknown providers and classes and for bad capacities, ConcurrentUpdate for
        generations, InventoryInUse, CapacityExceeded, Unavailable.
        """
        attributes = attributes_of(claims)
        claims = [replace(claim, is_move=True) for claim in claims]

        def work(transaction: Transaction) -> None:
            _reshape(transaction, inventories, Replacement(transaction, claims))

        run_in_transaction(self._database, work, before=lambda: self._attributes.register(attributes))


def _reshape(
    transaction: Transaction, inventories: Sequence[ProviderInventories], replacement: Replacement
) -> None:
    replacement.settle_consumers()
    locked = _lock(transaction, inventories, replacement)
    # Locks first, for their order prevents deadlocks; then the checks in the order that callers see.
    _check_providers(inventories, locked)
    replacement.check_generations()
    replacement.lock_providers()
    class_ids = _class_ids(transaction, inventories, replacement)
    _check_capacities(inventories)
    by_id = {locked[provider.provider_uuid].id: provider for provider in inventories}
    gone = _extend(transaction, by_id, class_ids)
    replacement.resolve(class_ids)
    replacement.apply()
    if gone:
        _delete(transaction, by_id, gone)
    replacement.store(names.class_names)
    # Clients compare generations, so the incumbent's steps are kept. One step is for the records, one more
    # if there are any; the allocations have added theirs.
    providers.advance(transaction, {id_: 2 if each.inventories else 1 for id_, each in by_id.items()})


def _lock(
    transaction: Transaction, inventories: Sequence[ProviderInventories], replacement: Replacement
) -> dict[str, LockedProvider]:
    """Lock all providers of the inventories and the allocations at once, in ascending order of ids."""
    uuids = {provider.provider_uuid for provider in inventories}
    uuids.update(*(claim.resources for claim in replacement.claims))
    held = {row.provider_id for row in replacement.held}
    return {row.uuid: row for row in providers.lock_all(transaction, uuids, held)}


def _check_providers(
    inventories: Sequence[ProviderInventories], locked: Mapping[str, LockedProvider]
) -> None:
    """Raise BadRequest for a provider that does not exist, ConcurrentUpdate for one that has changed."""
    for provider in inventories:
        uuid = provider.provider_uuid
        if uuid not in locked:
            raise BadRequest(
                f"Resource provider {uuid} in inventories not found: No resource provider with uuid {uuid} "
                "found",
                code="placement.resource_provider.not_found",
            )
        if locked[uuid].generation != provider.generation:
            raise ConcurrentUpdate(
                f"resource provider generation conflict for provider {uuid}: "
                f"actual: {locked[uuid].generation}, given: {provider.generation}"
            )


def _class_ids(
    transaction: Transaction, inventories: Sequence[ProviderInventories], replacement: Replacement
) -> dict[str, int]:
    """Return the ids of all classes that are named. Raises BadRequest for one that does not exist."""
    asked = replacement.class_names().union(*(provider.inventories for provider in inventories))
    class_ids = names.class_ids(transaction, asked)
    for name in sorted(asked - class_ids.keys()):
        raise BadRequest(f"malformed reshaper data: No such resource class {name}.")
    return class_ids


def _check_capacities(inventories: Sequence[ProviderInventories]) -> None:
    """Raise BadRequest for an inventory with a capacity that cannot be."""
    for provider in inventories:
        prefix = f"Unable to update inventory for resource provider {provider.provider_uuid}: "
        for name, inventory in provider.inventories.items():
            check_capacity(name, provider.provider_uuid, inventory, prefix, zero_capacity=True)


def _delete(
    transaction: Transaction, by_id: Mapping[int, ProviderInventories], gone: set[tuple[int, int]]
) -> None:
    """Delete inventories from which the allocations have moved. Raises InventoryInUse for others."""
    left = contents.stored(transaction, {provider_id for provider_id, _ in gone})
    for provider_id, provider in by_id.items():
        records = left.get(provider_id, {}).items()
        blocking = [each for id_, each in records if each.used and (provider_id, id_) in gone]
        if blocking:
            raise InventoryInUse(f"update conflict: {in_use(blocking, provider.provider_uuid)}")
    contents.delete(transaction, gone)


def _extend(
    transaction: Transaction, wanted: Mapping[int, ProviderInventories], class_ids: Mapping[str, int]
) -> set[tuple[int, int]]:
    """Insert and change inventories; return the ones to delete when the allocations have moved."""
    stored, change = contents.stored(transaction, list(wanted)), InventoryChange()
    for provider_id, provider in wanted.items():
        records = stored.get(provider_id, {})
        record_inventories(transaction, provider.provider_uuid, records.values(), provider.inventories)
        asked = {class_ids[name]: inventory for name, inventory in provider.inventories.items()}
        change.compare(provider_id, records, asked)
    contents.insert(transaction, change.added)
    contents.update(transaction, change.changed)
    return change.removed
