"""Making a stored tree what an import wants: the difference is written, in a handful of statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.domain.errors import Conflict
from placement.domain.inventory import Inventory
from placement.domain.tree import ProviderSpec, TreeSpec
from placement.storage import tables
from placement.storage.database import Transaction
from placement.storage.statements import (
    inventories,
    names,
    provider_rows,
    providers,
    trees,
)
from placement.storage.statements.inventories import Stored
from placement.storage.statements.providers import LockedProvider
from placement.storage.statements.trees import NewProvider

_SHOWN = 20


class InTheWay(Conflict):
    """The change is refused because of live allocations; `obstacles` names each of them."""

    code = "placement.inventory.inuse"

    def __init__(self, what: str, obstacles: Collection[str]) -> None:
        listed = sorted(obstacles)
        shown = listed[:_SHOWN] + ([f"and {len(listed) - _SHOWN} more"] if len(listed) > _SHOWN else [])
        super().__init__(f"{what} In the way: {'; '.join(shown)}.")
        self.obstacles = tuple(listed)


@dataclass(slots=True)
class TreeChange:
    """What a call changed: names of providers created, changed and deleted."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


def bring_about(transaction: Transaction, spec: TreeSpec, cluster_id: int) -> tuple[int, TreeChange]:
    """Make the stored tree of a cluster what the spec says; the id of its root and what changed.

    Unchanged providers keep their generation; providers that were not made by an import stay. Raises
    InTheWay when allocations would lose what they hold, or such providers their parent; Conflict when a
    name or uuid belongs to another tree.
    """
    return _TreeWriter(transaction, spec, cluster_id).run()


def remove(transaction: Transaction, root_id: int, what: str) -> None:
    """Delete a whole tree. Raises InTheWay if there are allocations on it."""
    ids = trees.ids_below(transaction, root_id)
    providers.lock_all(transaction, (), ids)
    held = trees.allocated(transaction, ids)
    if held:
        names = trees.names_of(transaction, held)
        raise InTheWay(
            f"{what} still has allocations.",
            {f"consumer {consumer} on {names[id_]}" for id_, users in held.items() for consumer in users},
        )
    providers.delete(transaction, sorted(ids))


@dataclass(slots=True)
class _TreeWriter:
    transaction: Transaction
    spec: TreeSpec
    cluster_id: int
    change: TreeChange = field(default_factory=TreeChange)
    raised: set[int] = field(default_factory=set)

    def run(self) -> tuple[int, TreeChange]:
        present = self._lock()
        class_ids = self._class_ids()
        trait_ids = self._trait_ids()
        wanted = {spec.uuid: spec for spec in self.spec.providers}
        gone = [
            row for uuid, row in present.items() if uuid not in wanted and row.cluster_id == self.cluster_id
        ]
        records = inventories.stored(self.transaction, [row.id for row in present.values()])
        self._check_obstacles(present, gone, records, class_ids)
        ids = {uuid: row.id for uuid, row in present.items()}
        fresh = self._create(ids)
        self._write_inventories(ids, records, class_ids)
        self._write_traits(ids, trait_ids)
        if gone:
            self._delete(gone)
        self.change.changed = sorted(
            spec.name for spec in self.spec.providers if ids[spec.uuid] in self.raised - fresh
        )
        providers.touch(self.transaction, self.raised)
        return ids[self.spec.root.uuid], self.change

    def _lock(self) -> dict[str, LockedProvider]:
        """The stored tree and all other providers with the wanted uuids, locked in order of ids."""
        providers.lock_trees(self.transaction, shared=True)
        root = provider_rows.find(self.transaction, self.spec.root.uuid)
        stored = trees.ids_below(self.transaction, root.id) if root else set()
        rows = providers.lock_all(self.transaction, [spec.uuid for spec in self.spec.providers], stored)
        for row in rows:
            if root is None or row.root_id != root.id:
                raise Conflict(f"Provider {row.uuid} already exists in another tree.")
        return {row.uuid: row for row in rows}

    def _class_ids(self) -> Mapping[str, int]:
        wanted = {name for spec in self.spec.providers for name in spec.inventories}
        return self._ensure_names(tables.resource_classes, wanted)

    def _trait_ids(self) -> Mapping[str, int]:
        wanted = {name for spec in self.spec.providers for name in spec.traits}
        return self._ensure_names(tables.traits, wanted)

    def _ensure_names(self, table: Any, wanted: Collection[str]) -> Mapping[str, int]:
        found = names.ids_of(self.transaction, table, wanted)
        missing = sorted(set(wanted) - found.keys())
        for name in missing:
            names.create(self.transaction, table, name)
        return {**found, **names.ids_of(self.transaction, table, missing)}

    # -- what may not happen ------------------------------------------------------------------------

    def _check_obstacles(
        self,
        present: Mapping[str, LockedProvider],
        gone: Collection[LockedProvider],
        records: Mapping[int, Mapping[int, Stored]],
        class_ids: Mapping[str, int],
    ) -> None:
        obstacles: set[str] = set()
        held = trees.allocated(self.transaction, [row.id for row in gone]) if gone else {}
        going = {row.id for row in gone}
        staying = {
            row.id: row.parent_id
            for row in present.values()
            if row.parent_id in going and row.id not in going
        }
        named = {*held, *staying, *staying.values()}
        names = trees.names_of(self.transaction, named) if named else {}
        obstacles |= {
            f"{names[parent]} would disappear above {names[id_]}" for id_, parent in staying.items()
        }
        for id_, consumers in held.items():
            obstacles |= {f"{names[id_]} would disappear, held by consumer {user}" for user in consumers}
        for spec in self.spec.providers:
            if spec.uuid in present:
                wanted = {class_ids[name]: inventory for name, inventory in spec.inventories.items()}
                obstacles |= _shrinking(spec, records.get(present[spec.uuid].id, {}), wanted)
        if obstacles:
            raise InTheWay(f"{self.spec.root.name} cannot shrink below its allocations.", obstacles)

    # -- writing ------------------------------------------------------------------------------------

    def _create(self, ids: dict[str, int]) -> set[int]:
        """Insert what is missing, level by level; the new ids."""
        missing = [spec for spec in self.spec.providers if spec.uuid not in ids]
        fresh: set[int] = set()
        while missing:
            level = [spec for spec in missing if spec.parent_uuid is None or spec.parent_uuid in ids]
            rows = [
                NewProvider(
                    spec.uuid,
                    spec.name,
                    ids[spec.parent_uuid] if spec.parent_uuid else None,
                    ids[self.spec.root.uuid] if spec.parent_uuid else None,
                )
                for spec in level
            ]
            inserted = trees.insert_providers(self.transaction, rows, self.cluster_id)
            for spec in level:
                if spec.uuid not in inserted:
                    raise Conflict(
                        f"Conflicting resource provider name: {spec.name} already exists.",
                        code="placement.duplicate_name",
                    )
            ids.update(inserted)
            fresh.update(inserted.values())
            self.change.created.extend(spec.name for spec in level)
            missing = [spec for spec in missing if spec.uuid not in ids]
        return fresh

    def _write_inventories(
        self,
        ids: Mapping[str, int],
        records: Mapping[int, Mapping[int, Stored]],
        class_ids: Mapping[str, int],
    ) -> None:
        added: list[tuple[int, int, Inventory]] = []
        changed: list[tuple[int, int, Inventory]] = []
        removed: set[tuple[int, int]] = set()
        for spec in self.spec.providers:
            provider_id = ids[spec.uuid]
            stored = records.get(provider_id, {})
            wanted = {class_ids[name]: inventory for name, inventory in spec.inventories.items()}
            for class_id, inventory in wanted.items():
                if class_id not in stored:
                    added.append((provider_id, class_id, inventory))
                elif stored[class_id].inventory != inventory:
                    changed.append((provider_id, class_id, inventory))
            removed |= {(provider_id, class_id) for class_id in stored if class_id not in wanted}
        inventories.delete_many(self.transaction, removed)
        inventories.update_many(self.transaction, changed)
        inventories.insert_many(self.transaction, added)
        self.raised |= {row[0] for row in added} | {row[0] for row in changed} | {row[0] for row in removed}

    def _write_traits(self, ids: Mapping[str, int], trait_ids: Mapping[str, int]) -> None:
        stored = trees.traits_of(self.transaction, list(ids.values()))
        added, removed = set(), set()
        for spec in self.spec.providers:
            provider_id = ids[spec.uuid]
            wanted = {trait_ids[name] for name in spec.traits}
            present = stored.get(provider_id, set())
            added |= {(provider_id, trait) for trait in wanted - present}
            removed |= {(provider_id, trait) for trait in present - wanted}
        trees.change_traits(self.transaction, added, removed)
        self.raised |= {pair[0] for pair in added | removed}

    def _delete(self, gone: Collection[LockedProvider]) -> None:
        names = trees.names_of(self.transaction, [row.id for row in gone])
        self.change.deleted = sorted(names.values())
        providers.delete(self.transaction, sorted(row.id for row in gone))


def _shrinking(spec: ProviderSpec, stored: Mapping[int, Stored], wanted: Mapping[int, Inventory]) -> set[str]:
    """The inventories of one provider that would no longer cover their use."""
    obstacles = set()
    for class_id, record in stored.items():
        if not record.used:
            continue
        inventory = wanted.get(class_id)
        if inventory is None:
            obstacles.add(f"{spec.name} would lose {record.class_name} with {record.used} in use")
        elif inventory.capacity < min(record.used, record.inventory.capacity):
            obstacles.add(
                f"{spec.name} would offer {inventory.capacity} {record.class_name} with {record.used} in use"
            )
    return obstacles
