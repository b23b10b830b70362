"""Changes of stored trees to what imports want: the difference is written, in a handful of statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.engine.domain.errors import Conflict
from placement.engine.domain.inventories import Inventory
from placement.engine.domain.tree_specs import ProviderSpec, TreeSpec
from placement.providers.inventories import InventoryChange
from placement.providers.statements import contents, names, providers
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import LockedProvider, NewProvider
from placement.storage import tables
from placement.storage.database import Transaction
from placement.storage.failures import TryAgain

_SHOWN = 20
# Limits for each cluster, because all callers share the lists of resource classes and of traits. The largest
# clusters of Kubernetes have 5,000 nodes, and a label may differ from node to node.
_MOST_CLASSES = 1000
_MOST_TRAITS = 5000


class InTheWay(Conflict):
    """A refusal of a change because of live allocations, the `obstacles`."""

    code = "placement.inventory.inuse"

    def __init__(self, what: str, obstacles: Collection[str]) -> None:
        super().__init__(f"{what} In the way: {'; '.join(_shown(sorted(obstacles)))}.")


def _shown(listed: list[str]) -> list[str]:
    """Return the first entries of a list, and in words how many more there are."""
    return listed[:_SHOWN] + ([f"and {len(listed) - _SHOWN} more"] if len(listed) > _SHOWN else [])


@dataclass(slots=True)
class TreeChange:
    """A change of a tree: the names of providers created, changed and deleted, and what was left out."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    # Whether inventories or traits were removed, so that classes or traits may be without any use.
    lost: bool = field(default=False, compare=False)
    warnings: list[str] = field(default_factory=list, compare=False)


Brought = tuple[int, TreeChange]
"""The id of the root of a stored tree that is as it should be, and what changed."""


class TreeRefused(Conflict):
    """A refusal of the tree with the root `root_uuid`, for which the transaction has to be given up.

    Another tree uses the name of one of its new providers, or the cluster has no room for new classes.
    """

    def __init__(self, message: str, root_uuid: str, code: str | None = None) -> None:
        super().__init__(message, code)
        self.root_uuid = root_uuid


def bring_about(
    transaction: Transaction, specs: Sequence[TreeSpec], cluster_id: int, *, cuts: bool
) -> dict[str, Brought | Conflict]:
    """Make the stored trees of a cluster what the specs say; return the outcome of each by uuid of its root.

    Unchanged providers keep their generation; providers that no import made stay. A tree that may not be
    changed stays as it is. It gets InTheWay if allocations would lose what they hold, or staying providers
    their parent, and Conflict if a uuid belongs to another tree. With `cuts`, inventories shrink below their
    use, and used ones that would disappear stay with nothing to give. New traits for which the cluster has no
    room are left out where they are optional: the last of them, in order of the specs and of their names.
    Raises TreeRefused.
    """
    return _TreeWriter(transaction, specs, cluster_id, cuts=cuts).run()


def remove(transaction: Transaction, root_id: int, what: str) -> None:
    """Delete a whole tree. Raises InTheWay if there are allocations on it."""
    ids = providers.ids_below(transaction, [root_id])
    providers.lock_all(transaction, (), ids)
    held = providers.allocated(transaction, ids)
    if held:
        names = providers.names_by_id(transaction, held)
        raise InTheWay(
            f"{what} still has allocations.",
            {f"consumer {consumer} on {names[id_]}" for id_, users in held.items() for consumer in users},
        )
    providers.delete(transaction, sorted(ids))


class _Tree:
    """A wanted tree, its stored providers, and the changes to them."""

    def __init__(self, spec: TreeSpec) -> None:
        self.spec = spec
        self.present: dict[str, LockedProvider] = {}
        self.ids: dict[str, int] = {}
        self.change = TreeChange()

    def gone(self, cluster_id: int) -> list[LockedProvider]:
        """Return the providers that an import made and the spec does not have."""
        wanted = {spec.uuid for spec in self.spec.providers}
        return [
            row for uuid, row in self.present.items() if uuid not in wanted and row.cluster_id == cluster_id
        ]

    def leave_out(self, traits: Collection[str]) -> None:
        """Take traits from the spec; if it has any of them a warning names these."""
        lacking = sorted({name for spec in self.spec.providers for name in spec.traits.intersection(traits)})
        if not lacking:
            return
        self.change.warnings.append(
            f"Node.metadata.labels: {len(lacking)} new traits are left out, as a cluster may have "
            f"{_MOST_TRAITS}: {', '.join(_shown(lacking))}; import the node again when there is room"
        )
        specs = (replace(spec, traits=spec.traits.difference(lacking)) for spec in self.spec.providers)
        self.spec = TreeSpec(tuple(specs))

    def keep_what_is_in_use(self, records: Mapping[int, Mapping[int, Stored]], cluster_id: int) -> None:
        """Add providers and inventories in use to the spec, with the providers above.

        A core that is gone stays while an instance holds threads of it, until an import finds it free.
        """
        kept = []
        for spec in self.spec.providers:
            stored = records.get(self.ids.get(spec.uuid, 0), {})
            kept.append(replace(spec, inventories=_covering(spec.inventories, stored)))
        gone = {row.id: row for row in self.gone(cluster_id)}
        uuids = {row.id: row.uuid for row in self.present.values()}
        staying: set[int] = set()
        for id_ in gone:
            above = id_ if _covering({}, records.get(id_, {})) else None
            while above in gone and above not in staying:
                staying.add(above)
                above = gone[above].parent_id
        for id_ in staying:
            row = gone[id_]
            parent = None if row.parent_id is None else uuids[row.parent_id]
            kept.append(ProviderSpec(row.uuid, row.name, parent, _covering({}, records.get(id_, {}))))
        self.spec = TreeSpec(tuple(kept))


class _TreeWriter:
    """The writing of trees in as many statements as one takes; trees that may not change are left out."""

    def __init__(
        self, transaction: Transaction, specs: Sequence[TreeSpec], cluster_id: int, *, cuts: bool
    ) -> None:
        self._transaction = transaction
        self._cluster_id = cluster_id
        self._cuts = cuts
        self._trees = [_Tree(spec) for spec in specs]
        self._refused: dict[str, Conflict] = {}
        self._raised: set[int] = set()

    def run(self) -> dict[str, Brought | Conflict]:
        """Write the trees; return the outcome of each. Raises TreeRefused."""
        self._lock()
        stored = [row.id for tree in self._trees for row in tree.present.values()]
        records = contents.stored(self._transaction, stored) if stored else {}
        if self._cuts:
            for tree in self._trees:
                tree.keep_what_is_in_use(records, self._cluster_id)
        class_ids = self._class_ids()
        trait_ids = self._trait_ids()
        gone = self._without_obstacles(records)
        fresh = self._create()
        self._write_inventories(records, class_ids)
        self._write_traits(fresh, trait_ids)
        if gone:
            names = providers.names_by_id(self._transaction, [row.id for row in gone])
            for tree in self._trees:
                tree.change.deleted = sorted(names[row.id] for row in tree.gone(self._cluster_id))
                tree.change.lost |= bool(tree.change.deleted)
            providers.delete(self._transaction, sorted(row.id for row in gone))
        raised = self._raised - fresh
        providers.touch(self._transaction, raised)
        done: dict[str, Brought | Conflict] = {}
        for tree in self._trees:
            changed = (spec.name for spec in tree.spec.providers if tree.ids[spec.uuid] in raised)
            tree.change.changed = sorted(changed)
            root = tree.spec.root.uuid
            done[root] = (tree.ids[root], tree.change)
        return {**self._refused, **done}

    def _refuse(self, refused: Mapping[str, Conflict]) -> None:
        self._refused.update(refused)
        self._trees = [tree for tree in self._trees if tree.spec.root.uuid not in refused]

    def _lock(self) -> None:
        """Lock the stored trees and all other providers with the wanted uuids, in order of ids."""
        transaction = self._transaction
        providers.lock_trees(transaction, shared=True)
        roots = providers.ids_of(transaction, [tree.spec.root.uuid for tree in self._trees])
        stored = providers.ids_below(transaction, roots.values()) if roots else set()
        uuids = [spec.uuid for _, spec in self._specs()]
        by_uuid = {row.uuid: row for row in providers.lock_all(transaction, uuids, stored)}
        by_root: dict[int | None, dict[str, LockedProvider]] = defaultdict(dict)
        for uuid, row in by_uuid.items():
            by_root[row.root_id][uuid] = row
        refused: dict[str, Conflict] = {}
        for tree in self._trees:
            tree.present = by_root[roots.get(tree.spec.root.uuid)]
            tree.ids = {uuid: row.id for uuid, row in tree.present.items()}
            for spec in tree.spec.providers:
                if spec.uuid in by_uuid and spec.uuid not in tree.present:
                    conflict = Conflict(f"Provider {spec.uuid} already exists in another tree.")
                    refused.setdefault(tree.spec.root.uuid, conflict)
        self._refuse(refused)

    def _class_ids(self) -> Mapping[str, int]:
        """Return the ids of the classes, created where they are missing. Raises TryAgain, TreeRefused."""
        wanted = {name for _, spec in self._specs() for name in spec.inventories}
        found = names.ids_of(self._transaction, tables.resource_classes, wanted, keep=True)
        missing = wanted - found.keys()
        if missing:
            self._require_room(missing)
        return {**found, **self._created(tables.resource_classes, missing)}

    def _trait_ids(self) -> Mapping[str, int]:
        """Return the ids of the traits, created where they are missing. Raises TryAgain."""
        wanted = {name for _, spec in self._specs() for name in spec.traits}
        found = names.ids_of(self._transaction, tables.traits, wanted, keep=True)
        missing = wanted - found.keys()
        if missing:
            missing -= self._leave_out(missing, found.values())
        return {**found, **self._created(tables.traits, missing)}

    def _created(self, table: Any, missing: Collection[str]) -> Mapping[str, int]:
        """Create resource classes or traits, and return their ids. Raises TryAgain."""
        for name in sorted(missing):
            names.create(self._transaction, table, name, made_by_import=True)
        found = names.ids_of(self._transaction, table, missing, keep=True)
        if len(found) < len(missing):
            raise TryAgain("Another writer removed resource classes or traits at the same moment.")
        return found

    def _require_room(self, missing: Collection[str]) -> None:
        """Raise TreeRefused for the first tree with more new classes than the cluster may have.

        The cluster is locked: no other import adds names while they are counted.
        """
        room = _MOST_CLASSES - providers.count_classes(self._transaction, self._cluster_id)
        fresh: set[str] = set()
        for tree, spec in self._specs():
            own = set(missing).intersection(spec.inventories)
            fresh |= own
            if len(fresh) > room:
                reason = (
                    f"Node.status.allocatable: resource class {min(own)} would be new, and the inventories "
                    f"of the cluster have {_MOST_CLASSES} classes already"
                )
                raise TreeRefused(reason, tree.spec.root.uuid)

    def _leave_out(self, missing: Collection[str], found: Collection[int]) -> set[str]:
        """Take new optional traits from the trees, as far as the cluster has no room; return these traits.

        `found` are the ids of the other traits that the trees will have.
        """
        required = {name for _, spec in self._specs() for name in spec.traits - spec.optional_traits}
        optional = dict.fromkeys(
            name
            for _, spec in self._specs()
            for name in sorted(spec.optional_traits.intersection(missing) - required)
        )
        # What only these trees have now, and will not have any more, makes room.
        roots = [tree.ids[tree.spec.root.uuid] for tree in self._trees if tree.ids]
        staying = providers.traits_beside(self._transaction, self._cluster_id, roots).union(found)
        room = _MOST_TRAITS - len(staying) - (len(missing) - len(optional))
        left_out = set(list(optional)[max(room, 0) :])
        for tree in self._trees:
            tree.leave_out(left_out)
        return left_out

    # -- what may not happen ------------------------------------------------------------------------

    def _without_obstacles(self, records: Mapping[int, Mapping[int, Stored]]) -> list[LockedProvider]:
        """Refuse the trees with obstacles, and return the providers to delete of the others."""
        gone = [row for tree in self._trees for row in tree.gone(self._cluster_id)]
        held = providers.allocated(self._transaction, [row.id for row in gone]) if gone else {}
        refused: dict[str, Conflict] = {}
        for tree in self._trees:
            obstacles = self._losses(tree, held) if gone else set()
            for spec in tree.spec.providers:
                if spec.uuid in tree.present and not self._cuts:
                    obstacles |= _shrinking(spec, records.get(tree.present[spec.uuid].id, {}))
            if obstacles:
                what = f"{tree.spec.root.name} cannot shrink below its allocations."
                refused[tree.spec.root.uuid] = InTheWay(what, obstacles)
        self._refuse(refused)
        return [row for tree in self._trees for row in tree.gone(self._cluster_id)]

    def _losses(self, tree: _Tree, held: Mapping[int, Collection[str]]) -> set[str]:
        """Return the losses of consumers and lower providers if these providers are deleted."""
        going = {row.id for row in tree.gone(self._cluster_id)}
        staying = {
            row.id: row.parent_id
            for row in tree.present.values()
            if row.parent_id in going and row.id not in going
        }
        users = {id_: held[id_] for id_ in going & held.keys()}
        named = {*users, *staying, *staying.values()}
        names = providers.names_by_id(self._transaction, named) if named else {}
        obstacles = {f"{names[parent]} would disappear above {names[id_]}" for id_, parent in staying.items()}
        for id_, consumers in users.items():
            obstacles |= {f"{names[id_]} would disappear, held by consumer {user}" for user in consumers}
        return obstacles

    # -- writing ------------------------------------------------------------------------------------

    def _create(self) -> set[int]:
        """Insert missing providers, level by level; return the new ids."""
        missing = [(tree, spec) for tree, spec in self._specs() if spec.uuid not in tree.ids]
        fresh: set[int] = set()
        while missing:
            level = [
                (tree, spec)
                for tree, spec in missing
                if spec.parent_uuid is None or spec.parent_uuid in tree.ids
            ]
            rows = []
            for tree, spec in level:
                parent_id = root_id = None
                if spec.parent_uuid:
                    parent_id, root_id = tree.ids[spec.parent_uuid], tree.ids[tree.spec.root.uuid]
                generation = int(bool(spec.inventories or spec.traits))
                rows.append(NewProvider(spec.uuid, spec.name, parent_id, root_id, generation))
            inserted = providers.insert_providers(self._transaction, rows, self._cluster_id)
            for tree, spec in level:
                if spec.uuid not in inserted:
                    taken = f"Conflicting resource provider name: {spec.name} already exists."
                    raise TreeRefused(taken, tree.spec.root.uuid, code="placement.duplicate_name")
                tree.ids[spec.uuid] = inserted[spec.uuid]
                tree.change.created.append(spec.name)
            fresh.update(inserted.values())
            missing = [(tree, spec) for tree, spec in missing if spec.uuid not in tree.ids]
        return fresh

    def _write_inventories(
        self, records: Mapping[int, Mapping[int, Stored]], class_ids: Mapping[str, int]
    ) -> None:
        change = InventoryChange()
        for tree, spec in self._specs():
            provider_id = tree.ids[spec.uuid]
            wanted = {class_ids[name]: inventory for name, inventory in spec.inventories.items()}
            tree.change.lost |= bool(change.compare(provider_id, records.get(provider_id, {}), wanted))
        change.write(self._transaction)
        self._raised |= {row[0] for row in (*change.added, *change.changed)} | {
            row[0] for row in change.removed
        }

    def _write_traits(self, fresh: Collection[int], trait_ids: Mapping[str, int]) -> None:
        known = [tree.ids[spec.uuid] for tree, spec in self._specs() if tree.ids[spec.uuid] not in fresh]
        stored = providers.traits_of(self._transaction, known) if known else {}
        added, removed = set(), set()
        for tree, spec in self._specs():
            provider_id = tree.ids[spec.uuid]
            wanted = {trait_ids[name] for name in spec.traits}
            present = stored.get(provider_id, set())
            added |= {(provider_id, trait) for trait in wanted - present}
            removed |= {(provider_id, trait) for trait in present - wanted}
            tree.change.lost |= bool(present - wanted)
        providers.change_traits(self._transaction, added, removed)
        self._raised |= {pair[0] for pair in added | removed}

    def _specs(self) -> Iterator[tuple[_Tree, ProviderSpec]]:
        return ((tree, spec) for tree in self._trees for spec in tree.spec.providers)


def _shrinking(spec: ProviderSpec, stored: Mapping[int, Stored]) -> set[str]:
    """Return the inventories of one provider that would no longer cover their use."""
    obstacles = set()
    for record in stored.values():
        inventory = spec.inventories.get(record.class_name)
        if not record.used:
            continue
        if inventory is None:
            obstacles.add(f"{spec.name} would lose {record.class_name} with {record.used} in use")
        elif inventory.capacity < min(record.used, record.inventory.capacity):
            obstacles.add(
                f"{spec.name} would offer {inventory.capacity} {record.class_name} with {record.used} in use"
            )
    return obstacles


def _covering(wanted: Mapping[str, Inventory], stored: Mapping[int, Stored]) -> dict[str, Inventory]:
    """Return the wanted inventories of one provider with totals that cover their usage.

    The excess is reserved, so that no more is given than is wanted.
    """
    covering = dict(wanted)
    for record in stored.values():
        offered = wanted.get(record.class_name) or replace(record.inventory, total=0, reserved=0)
        excess = record.used - max(offered.total, offered.capacity)
        if excess > 0:
            total, reserved = offered.total + excess, offered.reserved + excess
            covering[record.class_name] = replace(offered, total=total, reserved=reserved)
    return covering
