"""Reshaping: inventories of providers and allocations of consumers move together, or not at all.

Only the final state is judged: first inventories are added and changed, then the allocations move, then the
inventories that are not wanted any more are deleted. Source: placement-api.md, "Reshaper".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement.allocations.claims import Replacement, attributes_of
from placement.allocations.statements.consumers import AttributeRegistry
from placement.engine.domain.errors import BadRequest, ConcurrentUpdate, InventoryInUse
from placement.engine.domain.inventories import ConsumerClaim, Inventory, ProviderInventories
from placement.providers.inventories import check_capacity, in_use, record_inventories
from placement.providers.statements import contents, names, providers
from placement.providers.statements.providers import LockedProvider
from placement.storage.database import Database, Transaction, run_in_transaction

Key = tuple[int, int]


class Reshaper:
    """A use case that moves inventories and allocations in one transaction."""

    def __init__(self, database: Database, attributes: AttributeRegistry) -> None:
        self._database = database
        self._attributes = attributes

    def reshape(self, wanted: Sequence[ProviderInventories], claims: Sequence[ConsumerClaim]) -> None:
        """Give the providers exactly these records and the consumers exactly these allocations.

        Raises BadRequest for unknown providers and classes and for bad capacities, ConcurrentUpdate for
        generations, InventoryInUse, CapacityExceeded, Unavailable.
        """
        attributes = attributes_of(claims)
        claims = [replace(claim, is_move=True) for claim in claims]

        def work(transaction: Transaction) -> None:
            _Reshape(transaction, wanted, Replacement(transaction, claims)).run()

        run_in_transaction(self._database, work, before=lambda: self._attributes.register(attributes))


@dataclass(slots=True)
class _Reshape:
    transaction: Transaction
    wanted: Sequence[ProviderInventories]
    replacement: Replacement
    locked: dict[str, LockedProvider] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)

    def run(self) -> None:
        replacement = self.replacement
        replacement.settle_consumers()
        self._lock_providers()
        # Locks first, for their order prevents deadlocks; then the checks in the order that callers see.
        self._check_providers()
        replacement.check_generations()
        replacement.lock_providers()
        class_ids = self._class_ids()
        self._check_capacities()
        self._extend(class_ids)
        replacement.resolve(class_ids)
        replacement.apply()
        self._shrink()
        replacement.store(names.class_names)
        providers.advance(self.transaction, self._steps())

    def _lock_providers(self) -> None:
        """Lock all providers of the inventories and the allocations at once, in ascending order of ids."""
        uuids = {provider.provider_uuid for provider in self.wanted}
        uuids.update(*(claim.resources for claim in self.replacement.claims))
        held = {row.provider_id for row in self.replacement.held}
        self.locked = {row.uuid: row for row in providers.lock_all(self.transaction, uuids, held)}

    def _check_providers(self) -> None:
        for provider in self.wanted:
            locked = self.locked.get(provider.provider_uuid)
            if locked is None:
                raise BadRequest(
                    f"Resource provider {provider.provider_uuid} in inventories not found: "
                    f"No resource provider with uuid {provider.provider_uuid} found",
                    code="placement.resource_provider.not_found",
                )
            if locked.generation != provider.generation:
                raise ConcurrentUpdate(
                    f"resource provider generation conflict for provider {provider.provider_uuid}: "
                    f"actual: {locked.generation}, given: {provider.generation}"
                )

    def _class_ids(self) -> Mapping[str, int]:
        asked = self.replacement.class_names().union(*(provider.inventories for provider in self.wanted))
        ids = names.class_ids(self.transaction, asked)
        for name in sorted(asked):
            if name not in ids:
                raise BadRequest(f"malformed reshaper data: No such resource class {name}.")
        return ids

    def _check_capacities(self) -> None:
        for provider in self.wanted:
            prefix = f"Unable to update inventory for resource provider {provider.provider_uuid}: "
            for name, inventory in provider.inventories.items():
                check_capacity(name, provider.provider_uuid, inventory, prefix, zero_capacity=True)

    def _id(self, provider: ProviderInventories) -> int:
        return self.locked[provider.provider_uuid].id

    def _extend(self, class_ids: Mapping[str, int]) -> None:
        """Insert and change inventories; note inventories to delete when the allocations have moved."""
        stored = contents.stored(self.transaction, [self._id(provider) for provider in self.wanted])
        for provider in self.wanted:
            record_inventories(
                self.transaction,
                provider.provider_uuid,
                stored.get(self._id(provider), {}).values(),
                provider.inventories,
            )
        added: list[tuple[int, int, Inventory]] = []
        changed: list[tuple[int, int, Inventory]] = []
        for provider in self.wanted:
            records = stored.get(self._id(provider), {})
            asked = {class_ids[name]: inventory for name, inventory in provider.inventories.items()}
            for class_id, inventory in asked.items():
                if class_id not in records:
                    added.append((self._id(provider), class_id, inventory))
                elif records[class_id].inventory != inventory:
                    changed.append((self._id(provider), class_id, inventory))
            self.gone |= {(self._id(provider), class_id) for class_id in records.keys() - asked.keys()}
        contents.insert(self.transaction, added)
        contents.update(self.transaction, changed)

    def _shrink(self) -> None:
        """Delete the inventories that are not wanted any more. Raises InventoryInUse."""
        if not self.gone:
            return
        left = contents.stored(self.transaction, {provider_id for provider_id, _ in self.gone})
        for provider in self.wanted:
            records = left.get(self._id(provider), {})
            blocking = [
                record
                for class_id, record in records.items()
                if record.used and (self._id(provider), class_id) in self.gone
            ]
            if blocking:
                raise InventoryInUse(f"update conflict: {in_use(blocking, provider.provider_uuid)}")
        contents.delete(self.transaction, self.gone)

    def _steps(self) -> dict[int, int]:
        """Return how generations rise. Clients compare them, so the incumbent's steps are kept.

        One step is for the records, one more if there are any; the allocations have added theirs.
        """
        return {self._id(provider): 2 if provider.inventories else 1 for provider in self.wanted}
