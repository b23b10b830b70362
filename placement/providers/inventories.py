"""Use cases on the inventories of one provider. Source: placement-api.md, "Inventories"."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BadRequest, ConcurrentUpdate, InventoryInUse, NotFound
from placement.engine.domain.inventories import Inventory
from placement.providers.service import lock, locked_at, missing
from placement.providers.statements import contents, names, providers
from placement.providers.statements.contents import Offer, Stored
from placement.providers.statements.providers import LockedProvider
from placement.storage.database import Database, Transaction, run_in_transaction

LOG = logging.getLogger(__name__)
_CONFLICT = "resource provider generation conflict"


class Inventories:
    """A use case that reads and writes what a provider offers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def offer(self, uuid: str) -> Offer:
        """Return all records of a provider, with use. Raises NotFound."""
        with self._database.read() as connection:
            found = contents.offer(connection, uuid)
        if found is None:
            raise missing(uuid)
        return found

    def record(self, uuid: str, class_name: str) -> tuple[int, Stored]:
        """Return the provider's generation and its record of one class. Raises NotFound."""
        offer = self.offer(uuid)
        for stored in offer.records:
            if stored.class_name == class_name:
                return offer.generation, stored
        raise NotFound(f"No inventory of class {class_name} for {uuid}")

    def add(self, uuid: str, class_name: str, inventory: Inventory, *, zero_capacity: bool) -> int:
        """Add the record of a new class; return the provider's new generation.

        Raises NotFound, BadRequest, ConcurrentUpdate if the class has a record already.
        """
        prefix = f"Unable to create inventory for resource provider {uuid}: "

        def work(transaction: Transaction) -> int:
            locked = lock(transaction, uuid)
            check_capacity(class_name, uuid, inventory, prefix, zero_capacity=zero_capacity)
            class_id = names.class_ids(transaction, [class_name]).get(class_name)
            if class_id is None:
                raise BadRequest(f"{prefix}No such resource class {class_name}.")
            if class_id in contents.stored(transaction, [locked.id]).get(locked.id, {}):
                raise ConcurrentUpdate(f"Update conflict: Inventory of class {class_name} exists on {uuid}.")
            contents.insert(transaction, [(locked.id, class_id, inventory)])
            record_inventories(transaction, uuid, (), {class_name: inventory}, Action.CREATE)
            return _raise_generation(transaction, locked)

        return run_in_transaction(self._database, work)

    def replace_all(
        self, uuid: str, generation: int, wanted: Mapping[str, Inventory], *, zero_capacity: bool
    ) -> int:
        """Make these the provider's records; return its new generation.

        Raises NotFound, BadRequest, ConcurrentUpdate for the generation, InventoryInUse.
        """
        prefix = f"Unable to update inventory for resource provider {uuid}: "

        def work(transaction: Transaction) -> int:
            locked = locked_at(transaction, uuid, generation, _CONFLICT)
            for name, inventory in wanted.items():
                check_capacity(name, uuid, inventory, prefix, zero_capacity=zero_capacity)
            ids = names.class_ids(transaction, wanted)
            for name in wanted:
                if name not in ids:
                    raise BadRequest(
                        f"Unknown resource class in inventory for resource provider {uuid}: "
                        f"No such resource class {name}."
                    )
            by_id = {ids[name]: inventory for name, inventory in wanted.items()}
            former = replace_records(transaction, locked, by_id, "update conflict: ")
            record_inventories(transaction, uuid, former, wanted)
            return _raise_generation(transaction, locked)

        return run_in_transaction(self._database, work)

    def replace(
        self, uuid: str, class_name: str, generation: int, inventory: Inventory, *, zero_capacity: bool
    ) -> int:
        """Replace the record of one class; return the provider's new generation.

        Raises NotFound (also for an unknown class), BadRequest, ConcurrentUpdate for the generation.
        """
        prefix = f"Unable to update inventory for resource provider {uuid}: "

        def work(transaction: Transaction) -> int:
            locked = locked_at(transaction, uuid, generation, _CONFLICT)
            check_capacity(class_name, uuid, inventory, prefix, zero_capacity=zero_capacity)
            class_id = names.class_ids(transaction, [class_name]).get(class_name)
            if class_id is None:
                raise NotFound(f"No such resource class {class_name}.")
            former = contents.stored(transaction, [locked.id]).get(locked.id, {}).get(class_id)
            if former is None:
                raise BadRequest(
                    f"No inventory record with resource class for resource provider {uuid}: "
                    f"No inventory of class {class_name} found."
                )
            _warn_of_shrinking(former, inventory, uuid)
            contents.update(transaction, [(locked.id, class_id, inventory)])
            record_inventories(transaction, uuid, [former], {class_name: inventory})
            return _raise_generation(transaction, locked)

        return run_in_transaction(self._database, work)

    def delete(self, uuid: str, class_name: str) -> None:
        """Delete the record of one class. Raises NotFound, ConcurrentUpdate if it is in use."""

        def work(transaction: Transaction) -> None:
            locked = lock(transaction, uuid)
            records = contents.stored(transaction, [locked.id]).get(locked.id, {})
            chosen = [record for record in records.values() if record.class_name == class_name]
            if not chosen:
                raise NotFound(f"No inventory of class {class_name} found for delete")
            if chosen[0].used:
                raise ConcurrentUpdate(
                    f"Unable to delete inventory of class {class_name}: {in_use(chosen, uuid)}"
                )
            contents.delete(transaction, [(locked.id, chosen[0].class_id)])
            record_inventories(transaction, uuid, chosen, {}, Action.DELETE)
            _raise_generation(transaction, locked)

        run_in_transaction(self._database, work)

    def delete_all(self, uuid: str) -> None:
        """Delete all records. Raises NotFound, InventoryInUse."""

        def work(transaction: Transaction) -> None:
            locked = lock(transaction, uuid)
            former = replace_records(transaction, locked, {}, "")
            record_inventories(transaction, uuid, former, {}, Action.DELETE)
            _raise_generation(transaction, locked)

        run_in_transaction(self._database, work)


def replace_records(
    transaction: Transaction, locked: LockedProvider, wanted: Mapping[int, Inventory], in_use_prefix: str
) -> list[Stored]:
    """Insert, update and delete records until they are as `wanted` (by class id); return the former ones.

    Raises InventoryInUse.
    """
    records = contents.stored(transaction, [locked.id]).get(locked.id, {})
    gone = [record for class_id, record in records.items() if class_id not in wanted]
    blocking = [record for record in gone if record.used]
    if blocking:
        raise InventoryInUse(f"{in_use_prefix}{in_use(blocking, locked.uuid)}")
    contents.delete(transaction, [(locked.id, record.class_id) for record in gone])
    changed = {
        class_id: inventory
        for class_id, inventory in wanted.items()
        if class_id in records and records[class_id].inventory != inventory
    }
    for class_id, inventory in changed.items():
        _warn_of_shrinking(records[class_id], inventory, locked.uuid)
    contents.update(transaction, [(locked.id, *change) for change in changed.items()])
    fresh = sorted(wanted.keys() - records.keys())
    contents.insert(transaction, [(locked.id, class_id, wanted[class_id]) for class_id in fresh])
    return list(records.values())


def record_inventories(
    transaction: Transaction,
    uuid: str,
    before: Iterable[Stored],
    after: Mapping[str, Inventory],
    action: Action = Action.UPDATE,
) -> None:
    """Record a change of what a provider offers."""
    former = {stored.class_name: asdict(stored.inventory) for stored in before}
    later = {name: asdict(inventory) for name, inventory in after.items()}
    transaction.record(action, TargetKind.INVENTORIES, uuid, before=former or None, after=later or None)


def _warn_of_shrinking(stored: Stored, wanted: Inventory, uuid: str) -> None:
    if wanted.capacity < stored.used:
        message = "Resource provider %s now has %d of %s in use with a capacity of %d."
        LOG.warning(message, uuid, stored.used, stored.class_name, wanted.capacity)


def in_use(records: Iterable[Stored], uuid: str) -> str:
    """Return the sentence about inventories that cannot be deleted, classes in the order of their ids."""
    listed = ", ".join(record.class_name for record in sorted(records, key=lambda record: record.class_id))
    return f"Inventory for '{listed}' on resource provider '{uuid}' in use."


def check_capacity(
    class_name: str, uuid: str, inventory: Inventory, prefix: str, *, zero_capacity: bool
) -> None:
    """Raise BadRequest for a negative capacity, and for zero where that is not understood (before 1.26)."""
    prefix += f"Invalid inventory for '{class_name}' on resource provider '{uuid}'. "
    if inventory.capacity <= 0 and not zero_capacity:
        raise BadRequest(f"{prefix}The reserved value is greater than or equal to total.")
    if inventory.capacity < 0:
        raise BadRequest(f"{prefix}The reserved value is greater than total.")


def _raise_generation(transaction: Transaction, locked: LockedProvider) -> int:
    providers.touch(transaction, [locked.id])
    return locked.generation + 1
