"""Use cases on the inventories of one provider. Source: placement-api.md, "Inventories"."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

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
    """A use case that reads and writes the inventories of a provider."""

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
            if class_id in _records(transaction, locked):
                raise ConcurrentUpdate(f"Update conflict: Inventory of class {class_name} exists on {uuid}.")
            contents.insert(transaction, [(locked.id, class_id, inventory)])
            return _recorded(transaction, locked, (), {class_name: inventory}, Action.CREATE)

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
            records = _records(transaction, locked)
            change = InventoryChange()
            change.compare(locked.id, records, by_id)
            _refuse_if_used([records[class_id] for _, class_id in change.removed], uuid, "update conflict: ")
            change.write(transaction)
            for _, class_id, inventory in change.changed:
                _warn_of_shrinking(records[class_id], inventory, uuid)
            return _recorded(transaction, locked, records.values(), wanted, Action.UPDATE)

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
            former = _records(transaction, locked).get(class_id)
            if former is None:
                raise BadRequest(
                    f"No inventory record with resource class for resource provider {uuid}: "
                    f"No inventory of class {class_name} found."
                )
            _warn_of_shrinking(former, inventory, uuid)
            contents.update(transaction, [(locked.id, class_id, inventory)])
            return _recorded(transaction, locked, [former], {class_name: inventory}, Action.UPDATE)

        return run_in_transaction(self._database, work)

    def delete(self, uuid: str, class_name: str | None = None) -> None:
        """Delete the record of one class, or all (None).

        Raises NotFound, ConcurrentUpdate if the one is in use, InventoryInUse if one of all is.
        """

        def work(transaction: Transaction) -> None:
            locked = lock(transaction, uuid)
            records = _records(transaction, locked).values()
            chosen = [record for record in records if class_name in (None, record.class_name)]
            if class_name is None:
                _refuse_if_used(chosen, uuid, "")
            elif not chosen:
                raise NotFound(f"No inventory of class {class_name} found for delete")
            elif chosen[0].used:
                raise ConcurrentUpdate(
                    f"Unable to delete inventory of class {class_name}: {in_use(chosen, uuid)}"
                )
            contents.delete(transaction, [(locked.id, record.class_id) for record in chosen])
            _recorded(transaction, locked, chosen, {}, Action.DELETE)

        run_in_transaction(self._database, work)


@dataclass(slots=True)
class InventoryChange:
    """The records of providers to insert, to update and to delete, by ids of provider and class."""

    added: list[tuple[int, int, Inventory]] = field(default_factory=list)
    changed: list[tuple[int, int, Inventory]] = field(default_factory=list)
    removed: set[tuple[int, int]] = field(default_factory=set)

    def compare(
        self, provider_id: int, stored: Mapping[int, Stored], wanted: Mapping[int, Inventory]
    ) -> set[tuple[int, int]]:
        """Note the changes from stored to wanted records of a provider; return the ones to delete."""
        for class_id, inventory in wanted.items():
            if class_id not in stored:
                self.added.append((provider_id, class_id, inventory))
            elif stored[class_id].inventory != inventory:
                self.changed.append((provider_id, class_id, inventory))
        removed = {(provider_id, class_id) for class_id in stored.keys() - wanted.keys()}
        self.removed |= removed
        return removed

    def write(self, transaction: Transaction) -> None:
        """Delete, update and insert these records."""
        contents.delete(transaction, self.removed)
        contents.update(transaction, self.changed)
        contents.insert(transaction, self.added)


def _records(transaction: Transaction, locked: LockedProvider) -> dict[int, Stored]:
    return contents.stored(transaction, [locked.id]).get(locked.id, {})


def _refuse_if_used(stored: Iterable[Stored], uuid: str, prefix: str) -> None:
    blocking = [record for record in stored if record.used]
    if blocking:
        raise InventoryInUse(f"{prefix}{in_use(blocking, uuid)}")


def _recorded(
    transaction: Transaction,
    locked: LockedProvider,
    stored: Iterable[Stored],
    after: Mapping[str, Inventory],
    action: Action,
) -> int:
    """Record a change and raise the provider's generation; return it."""
    record_inventories(transaction, locked.uuid, stored, after, action)
    providers.touch(transaction, [locked.id])
    return locked.generation + 1


def record_inventories(
    transaction: Transaction,
    uuid: str,
    stored: Iterable[Stored],
    after: Mapping[str, Inventory],
    action: Action = Action.UPDATE,
) -> None:
    """Record a change of the inventories of a provider."""
    former = {each.class_name: asdict(each.inventory) for each in stored}
    later = {name: asdict(inventory) for name, inventory in after.items()}
    transaction.record(action, TargetKind.INVENTORIES, uuid, before=former or None, after=later or None)


def _warn_of_shrinking(stored: Stored, inventory: Inventory, uuid: str) -> None:
    if inventory.capacity < stored.used:
        message = "Resource provider %s now has %d of %s in use with a capacity of %d."
        LOG.warning(message, uuid, stored.used, stored.class_name, inventory.capacity)


def in_use(stored: Iterable[Stored], uuid: str) -> str:
    """Return the sentence about inventories that cannot be deleted, classes in the order of their ids."""
    listed = ", ".join(record.class_name for record in sorted(stored, key=lambda record: record.class_id))
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
