"""Use cases on resource providers and their trees. Source: placement-api.md, "Resource providers"."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import os_resource_classes

from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import (
    BadRequest,
    ConcurrentUpdate,
    Conflict,
    NameKind,
    NamesOf,
    NotFound,
)
from placement.engine.domain.groups import RequestGroup
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.search.filters import providers_matching
from placement.providers import view as providers_view
from placement.providers.statements import clusters, contents, names, providers
from placement.providers.statements.clusters import ListedAggregate
from placement.providers.statements.contents import Members, Replaced
from placement.providers.statements.names import KnownName
from placement.providers.statements.providers import LockedProvider, Provider
from placement.storage import tables
from placement.storage.database import Database, Executor, Transaction, run_in_transaction

# The incumbent's words, which its clients know: the second step of an update is a creation to it, too.
_CREATE = "Object action create failed because: "
_UPDATE = "Object action update failed because: "
_DUPLICATE = "placement.duplicate_name"
_TRAITS_PREFIX = 'Invalid trait(s) in "required" parameter: '


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent a caller gives; `uuid` None makes the provider a root."""

    uuid: str | None


class Providers:
    """A use case that creates, lists, changes and deletes providers."""

    def __init__(self, database: Database, keeper: providers_view.ForestKeeper) -> None:
        self._database = database
        self._keeper = keeper

    def get(self, uuid: str) -> Provider:
        """Return one provider. Raises NotFound."""
        with self._database.read() as connection:
            return _there(connection, uuid)

    def listed(self, name: str | None, uuid: str | None, group: RequestGroup) -> list[Provider]:
        """Return providers that alone satisfy the group and have this name and uuid. Raises BadRequest."""
        ids = None
        if group != RequestGroup():
            view = self._keeper.current()
            aggregates = providers_view.aggregate_ids(self._database, providers_view.aggregates_of(group))
            wanted = providers_view.resolve_group(view.names, group, aggregates, _TRAITS_PREFIX)
            if group.in_tree is not None and group.in_tree != normalize_uuid(group.in_tree):
                # The list compares uuids literally, and none is stored in this spelling.
                return []
            rows = providers_matching(view.forest, wanted)
            ids = view.forest.providers.id[rows].tolist()
        with self._database.read() as connection:
            return providers.listed(connection, name=name, uuid=uuid, ids=ids)

    def is_empty(self) -> bool:
        with self._database.read() as connection:
            return not providers.exist(connection)

    def uuids_of(self, wanted: Collection[str]) -> dict[str, str]:
        """Return the uuids of providers by name. Raises NotFound naming the ones that do not exist."""
        with self._database.read() as connection:
            found = providers.uuids_by_name(connection, wanted)
        unknown = sorted(set(wanted) - found.keys())
        if unknown:
            raise NotFound(f"No resource provider named {', '.join(unknown)} found")
        return found

    def create(self, uuid: str, name: str, parent_uuid: str | None) -> Provider:
        """Create a provider. Raises BadRequest for a bad parent, Conflict if name or uuid exist."""
        prefix = f'Unable to create resource provider "{name}", {uuid}: '

        def work(transaction: Transaction) -> Provider:
            parent = None
            if parent_uuid is not None:
                if normalize_uuid(parent_uuid) == uuid:
                    raise BadRequest(
                        f"{prefix}{_CREATE}parent provider UUID cannot be same as UUID. "
                        "Please set parent provider UUID to None if there is no parent."
                    )
                providers.lock_trees(transaction, shared=True)
                parent = _locked_parent(transaction, parent_uuid, prefix)
            if not providers.insert(transaction, uuid, name, parent):
                known = providers.find(transaction, uuid) is not None
                which = f"uuid: {uuid}" if known else f"name: {name}"
                raise Conflict(f"Conflicting resource provider {which} already exists.", code=_DUPLICATE)
            created = _there(transaction, uuid)
            transaction.record(Action.CREATE, TargetKind.PROVIDER, uuid, after=_described(created))
            return created

        return run_in_transaction(self._database, work)

    def update(self, uuid: str, name: str, parent: Parent | None, *, may_move: bool) -> Provider:
        """Rename a provider and, if `parent` is given, move it there with its whole subtree.

        `may_move` allows leaving a parent (microversion 1.37). Raises NotFound, BadRequest,
        Conflict, also for a provider that the import of a node made.
        """
        prefix = f"Unable to save resource provider {uuid}: "

        def work(transaction: Transaction) -> Provider:
            if parent is not None:
                providers.lock_trees(transaction, shared=False)
            locked = lock(transaction, uuid)
            _check_import(transaction, locked, name, parent, prefix)
            former = None
            if parent is not None:
                former = _there(transaction, uuid)
                _move(transaction, locked, parent, prefix, may_move=may_move)
            if providers.name_taken(transaction, name, other_than=locked.id):
                raise Conflict(f"Conflicting resource provider {name} already exists.", code=_DUPLICATE)
            providers.rename(transaction, locked.id, name)
            updated = _there(transaction, uuid)
            before = {**_described(former or updated), "name": locked.name}
            after = _described(updated)
            transaction.record(Action.UPDATE, TargetKind.PROVIDER, uuid, before=before, after=after)
            return updated

        return run_in_transaction(self._database, work)

    def delete(self, uuid: str) -> None:
        """Delete a leaf without allocations that no import of a node made. Raises NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            locked = providers.lock(transaction, uuid)
            if locked is None:
                raise NotFound(f"No resource provider with uuid {uuid} found for delete")
            if providers.has_children(transaction, locked.id):
                raise Conflict(
                    f"Unable to delete parent resource provider {uuid}: It has child resource providers.",
                    code="placement.resource_provider.cannot_delete_parent",
                )
            if providers.has_allocations(transaction, locked.id):
                raise Conflict(
                    f"Unable to delete resource provider {uuid}: Resource provider has allocations.",
                    code="placement.resource_provider.inuse",
                )
            node = _node_of(transaction, locked)
            if node is not None:
                part = "is" if locked.id == locked.root_id else "belongs to"
                raise Conflict(
                    f"Unable to delete resource provider {uuid}: "
                    f"It {part} node {node}; delete the node instead.",
                    code="placement.resource_provider.inuse",
                )
            providers.delete(transaction, [locked.id])

        run_in_transaction(self._database, work)


def _described(provider: Provider) -> dict[str, str | None]:
    return {"name": provider.name, "parent_provider_uuid": provider.parent_uuid}


def _there(connection: Executor, uuid: str) -> Provider:
    found = providers.find(connection, uuid)
    if found is None:
        raise missing(uuid)
    return found


def missing(uuid: str) -> NotFound:
    """Return the error for a path that names no provider."""
    return NotFound(f"No resource provider with uuid {uuid} found")


def lock(transaction: Transaction, uuid: str) -> LockedProvider:
    """Lock the row of a provider and return it. Raises NotFound."""
    locked = providers.lock(transaction, uuid)
    if locked is None:
        raise missing(uuid)
    return locked


def _node_of(transaction: Transaction, locked: LockedProvider) -> str | None:
    """Return the node, `cluster/node`, that made the provider by import; None for others below its host."""
    return None if locked.cluster_id is None else clusters.node_on(transaction, locked.root_id)


def _check_import(
    transaction: Transaction, locked: LockedProvider, name: str, parent: Parent | None, prefix: str
) -> None:
    """Raise Conflict for changes that would break the tree of an imported node."""
    if locked.cluster_id is None:
        return
    stored = _there(transaction, locked.uuid)
    wanted = stored.parent_uuid if parent is None else parent.uuid and (normalize_uuid(parent.uuid) or "")
    node = None
    if (name, wanted) != (stored.name, stored.parent_uuid):
        node = _node_of(transaction, locked)
    if node is not None:
        raise Conflict(
            f"{prefix}It belongs to node {node}, which gives its providers their names and their places.",
            code="placement.resource_provider.inuse",
        )


def _locked_parent(transaction: Transaction, uuid: str, prefix: str) -> LockedProvider:
    parent = providers.lock(transaction, normalize_uuid(uuid) or uuid)
    if parent is None:
        raise BadRequest(f"{prefix}{_CREATE}parent provider UUID does not exist.")
    return parent


def _move(
    transaction: Transaction, locked: LockedProvider, parent: Parent, prefix: str, *, may_move: bool
) -> None:
    target = None if parent.uuid is None else _locked_parent(transaction, parent.uuid, prefix)
    if (target and target.id) == locked.parent_id:
        return
    if locked.parent_id is not None and not may_move:
        move = "un-parenting" if target is None else "re-parenting"
        raise BadRequest(f"{prefix}{_UPDATE}{move} a provider is not currently allowed.")
    members = providers.subtree(transaction, locked)
    if target is not None and target.id in members:
        raise BadRequest(f"{prefix}{_UPDATE}creating loop in the provider tree is not allowed.")
    providers.move(transaction, locked, target, members)


# Use cases on the traits and aggregates of one provider.
#
# Source: placement-api.md, "Aggregates", "Traits of a provider", "Traits".


_STALE = "Resource provider's generation already changed. Please update the generation and try again."


class ProviderMemberships:
    """A use case that reads and writes the traits and aggregates of a provider."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def traits(self, uuid: str) -> Members:
        """Return the traits of a provider. Raises NotFound."""
        with self._database.read() as connection:
            return _present(contents.members_of(connection, contents.TRAITS, uuid), uuid)

    def aggregates(self, uuid: str) -> Members:
        """Return the aggregates of a provider. Raises NotFound."""
        with self._database.read() as connection:
            return _present(contents.members_of(connection, contents.AGGREGATES, uuid), uuid)

    def replace_traits(self, uuid: str, wanted: Collection[str], generation: int | None) -> Members:
        """Make these the provider's traits; its generation rises only if they differ.

        With `generation` None it is not checked. Raises NotFound, ConcurrentUpdate, BadRequest for unknown
        traits.
        """

        def work(transaction: Transaction) -> Members:
            locked = locked_at(transaction, uuid, generation)
            ids = names.trait_ids(transaction, wanted)
            unknown = sorted(set(wanted) - ids.keys())
            if unknown:
                raise BadRequest(f"No such trait {', '.join(unknown)}")
            replaced = contents.replace_members(transaction, contents.TRAITS, locked.id, ids.values())
            if replaced.changed:
                providers.touch(transaction, [locked.id])
                _record(transaction, TargetKind.TRAITS, uuid, replaced, wanted)
            return _present(contents.members_of(transaction, contents.TRAITS, uuid), uuid)

        return run_in_transaction(self._database, work)

    def clear_traits(self, uuid: str) -> None:
        """Take all traits from a provider. Raises NotFound."""

        def work(transaction: Transaction) -> None:
            locked = lock(transaction, uuid)
            replaced = contents.replace_members(transaction, contents.TRAITS, locked.id, ())
            if replaced.changed:
                providers.touch(transaction, [locked.id])
                _record(transaction, TargetKind.TRAITS, uuid, replaced, ())

        run_in_transaction(self._database, work)

    def replace_aggregates(self, uuid: str, wanted: Collection[str], generation: int | None) -> int:
        """Make these the provider's aggregates; return its generation afterwards.

        With `generation` None nothing is checked and the generation stays (before microversion 1.19).
        Raises NotFound, ConcurrentUpdate.
        """

        def work(transaction: Transaction) -> int:
            locked = locked_at(transaction, uuid, generation)
            replaced = contents.replace_aggregates(transaction, locked.id, wanted)
            _record(transaction, TargetKind.AGGREGATES, uuid, replaced, wanted)
            raised = [] if generation is None else [locked.id]
            providers.touch(transaction, raised, [] if raised else [locked.id])
            return locked.generation + len(raised)

        return run_in_transaction(self._database, work)


def locked_at(
    transaction: Transaction, uuid: str, generation: int | None, conflict: str = _STALE
) -> LockedProvider:
    """Lock a provider that has this generation, if one is given. Raises NotFound, ConcurrentUpdate."""
    locked = lock(transaction, uuid)
    if generation not in (None, locked.generation):
        raise ConcurrentUpdate(conflict)
    return locked


def _present(members: Members | None, uuid: str) -> Members:
    if members is None:
        raise missing(uuid)
    return members


def _record(
    transaction: Transaction, kind: TargetKind, uuid: str, replaced: Replaced, wanted: Collection[str]
) -> None:
    before, after = {str(kind): replaced.before}, {str(kind): sorted(wanted)}
    transaction.record(Action.UPDATE, kind, uuid, before=before, after=after)


_MOST_ALIKE = 10


class NamedAggregate(NamedTuple):
    """An aggregate with its new name; `also_named`: UUIDs of the first others that have this name, too."""

    uuid: str
    name: str | None
    cluster: str | None
    also_named: list[str]


class Aggregates:
    """A use case that lists aggregates and names them."""

    for_bound_callers = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(self, cluster: str | None, after: int, count: int) -> tuple[list[ListedAggregate], int | None]:
        """Return the next aggregates, and the id after which the following page begins.

        With a `cluster` only its providers count. Raises BadRequest for an unknown cluster.
        """
        with self._database.read() as connection:
            providers_view.require_cluster(connection, cluster)
            found = clusters.aggregates_after(connection, cluster, after, count + 1)
        return found[:count], found[count - 1].id if len(found) > count else None

    def called(self, cluster: str | None, uuids: Collection[str]) -> dict[str, str]:
        """Return the names of aggregates that have one, by uuid; with a `cluster` only of its trees."""
        if not uuids:
            return {}
        with self._database.read() as connection:
            providers_view.require_cluster(connection, cluster)
            found = clusters.aggregates_after(connection, cluster, 0, len(uuids), uuids)
        return {each.uuid: each.name for each in found if each.name}

    def rename(self, called: str, name: str | None) -> NamedAggregate:
        """Give an aggregate, called by UUID or name, another name or none; return it.

        Raises Forbidden, NotFound, Conflict, also where several have the name.
        """
        request_scope.require_everything()

        def work(transaction: Transaction) -> NamedAggregate:
            normal = normalize_uuid(called)
            if normal is None:
                uuids = [each.uuid for each in clusters.aggregates_named(transaction, [called])]
                if len(uuids) > 1:
                    raise Conflict(f"{len(uuids)} aggregates have the name {called}: {', '.join(uuids[:5])}.")
                normal = next(iter(uuids), None)
            found = None if normal is None else clusters.lock_aggregate(transaction, normal)
            if found is None:
                raise NotFound(
                    f"No aggregate {called} found; it is known once a provider is put into it.",
                    value=called,
                    known=NamesOf(NameKind.AGGREGATE),
                )
            if found.cluster is not None:
                raise Conflict(f"Aggregate {normal} is that of cluster {found.cluster}, and keeps its name.")
            if found.name != name:
                clusters.name_aggregate(transaction, found.id, name)
                before, after = {"name": found.name}, {"name": name}
                kind = TargetKind.AGGREGATE
                transaction.record(Action.UPDATE, kind, found.uuid, before=before, after=after)
            alike = [] if name is None else clusters.aggregates_named(transaction, [name])
            others = [each.uuid for each in alike if each.uuid != found.uuid]
            return NamedAggregate(found.uuid, name, found.cluster, others[:_MOST_ALIKE])

        return run_in_transaction(self._database, work)


# Use cases on resource classes and traits. Source: placement-api.md, "Resource classes", "Traits".


class ResourceClasses:
    """A use case that creates, lists, renames and deletes resource classes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(self) -> list[KnownName]:
        """Return all classes, standard ones first."""
        with self._database.read() as connection:
            return names.classes(connection)

    def get(self, name: str) -> KnownName:
        """Return one class. Raises NotFound."""
        with self._database.read() as connection:
            return _known(connection, tables.resource_classes, name)

    def create(self, name: str) -> bool:
        """Make sure the class exists; return False if it did before."""
        return run_in_transaction(
            self._database,
            lambda transaction: names.create_lasting(transaction, tables.resource_classes, name),
        )

    def rename(self, name: str, new: str) -> None:
        """Give a custom class another name. Raises NotFound, BadRequest, Conflict."""

        def work(transaction: Transaction) -> None:
            entry = _known(transaction, tables.resource_classes, name)
            if not os_resource_classes.is_custom(name):
                raise BadRequest(f"Cannot update standard resource class {name}")
            if new == name:
                return
            if not names.rename_class(transaction, entry.id, new):
                raise Conflict(f"Resource class already exists: {new}")
            before, after = {"name": name}, {"name": new}
            transaction.record(Action.UPDATE, TargetKind.RESOURCE_CLASS, name, before=before, after=after)

        run_in_transaction(self._database, work)

    def delete(self, name: str) -> None:
        """Delete a custom class that no inventory uses. Raises NotFound, BadRequest, Conflict."""
        prefix = "Error in delete resource class: Cannot delete "

        def work(transaction: Transaction) -> None:
            entry = _known(transaction, tables.resource_classes, name)
            if not os_resource_classes.is_custom(name):
                raise BadRequest(f"{prefix}standard resource class {name}.")
            if not names.delete_class(transaction, entry.id):
                raise Conflict(f"{prefix}resource class {name}. Class is in use in inventory.")
            transaction.record(Action.DELETE, TargetKind.RESOURCE_CLASS, name)

        run_in_transaction(self._database, work)


def _known(connection: Executor, table: Any, name: str) -> KnownName:
    """Return a resource class or trait. Raises NotFound."""
    entry = names.find(connection, table, name)
    if entry is None:
        what = "trait(s):" if table is tables.traits else "resource class"
        raise NotFound(f"No such {what} {name}.")
    return entry


class Traits:
    """A use case that creates, lists and deletes traits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(
        self,
        only: frozenset[str] | None = None,
        prefix: str | None = None,
        associated: bool | None = None,
    ) -> list[KnownName]:
        """Return the traits of these names, with this prefix, that providers carry or do not."""
        with self._database.read() as connection:
            entries = names.traits(connection, associated=associated)
        return [
            entry
            for entry in entries
            if (only is None or entry.name in only) and (prefix is None or entry.name.startswith(prefix))
        ]

    def get(self, name: str) -> KnownName:
        """Return one trait. Raises NotFound."""
        with self._database.read() as connection:
            return _known(connection, tables.traits, name)

    def create(self, name: str) -> tuple[bool, datetime.datetime]:
        """Make sure the trait exists; return whether it is new, and when it was created."""

        def work(transaction: Transaction) -> tuple[bool, datetime.datetime]:
            created = names.create_lasting(transaction, tables.traits, name)
            entry = names.find(transaction, tables.traits, name)
            return created, entry.created_at if entry else transaction.now

        return run_in_transaction(self._database, work)

    def delete(self, name: str) -> None:
        """Delete a custom trait that no provider carries. Raises NotFound, BadRequest, Conflict."""

        def work(transaction: Transaction) -> None:
            entry = _known(transaction, tables.traits, name)
            if not name.startswith("CUSTOM_"):
                raise BadRequest(f"Cannot delete standard trait {name}.")
            if not names.delete_trait(transaction, entry.id):
                raise Conflict(f"The trait {name} is in use by a resource provider.")
            transaction.record(Action.DELETE, TargetKind.TRAIT, name)

        run_in_transaction(self._database, work)
