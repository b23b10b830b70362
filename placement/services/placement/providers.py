"""Use cases on resource providers and their trees. Source: placement-api.md, "Resource providers"."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from placement.domain.audit import Action, Kind
from placement.domain.errors import BadRequest, Conflict, NotFound
from placement.domain.groups import RequestGroup
from placement.domain.identifiers import normalize_uuid
from placement.search.filters import providers_matching
from placement.services.following.forest_keeper import ForestKeeper
from placement.services.placement.group_names import group_aggregates, resolve_group
from placement.services.transactions import attempt
from placement.storage.database import Database, Transaction
from placement.storage.statements import clusters, provider_rows, providers
from placement.storage.statements.provider_rows import Provider
from placement.storage.statements.providers import LockedProvider

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
    """Creates, lists, changes and deletes providers."""

    def __init__(self, database: Database, keeper: ForestKeeper) -> None:
        self._database = database
        self._keeper = keeper

    def get(self, uuid: str) -> Provider:
        """One provider. Raises NotFound."""
        with self._database.read() as connection:
            found = provider_rows.find(connection, uuid)
        if found is None:
            raise missing(uuid)
        return found

    def listed(self, name: str | None, uuid: str | None, group: RequestGroup) -> list[Provider]:
        """Providers that alone satisfy the group and carry the given name and uuid. Raises BadRequest."""
        ids = None
        if group != RequestGroup():
            view = self._keeper.current()
            aggregates = group_aggregates(self._database, group)
            wanted = resolve_group(view.names, group, aggregates, _TRAITS_PREFIX)
            if group.in_tree is not None and group.in_tree != normalize_uuid(group.in_tree):
                # The list compares uuids literally, and none is stored in this spelling.
                return []
            rows = providers_matching(view.forest, wanted)
            ids = view.forest.providers.id[rows].tolist()
        with self._database.read() as connection:
            return provider_rows.listed(connection, name=name, uuid=uuid, ids=ids)

    def is_empty(self) -> bool:
        """Whether there is no provider at all."""
        with self._database.read() as connection:
            return not provider_rows.exist(connection)

    def uuids_of(self, wanted: Collection[str]) -> dict[str, str]:
        """The uuids of providers by name. Raises NotFound naming those that do not exist."""
        with self._database.read() as connection:
            found = provider_rows.uuids_by_name(connection, wanted)
        unknown = sorted(set(wanted) - found.keys())
        if unknown:
            raise NotFound(f"No resource provider named {', '.join(unknown)} found")
        return found

    def create(self, uuid: str, name: str, parent_uuid: str | None) -> Provider:
        """A new provider. Raises BadRequest for a bad parent, Conflict if name or uuid exist."""
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
                known = provider_rows.find(transaction, uuid) is not None
                which = f"uuid: {uuid}" if known else f"name: {name}"
                raise Conflict(f"Conflicting resource provider {which} already exists.", code=_DUPLICATE)
            created = provider_rows.find(transaction, uuid)
            assert created is not None
            transaction.record(Action.CREATE, Kind.PROVIDER, uuid, after=_described(created))
            return created

        return attempt(self._database, work)

    def update(self, uuid: str, name: str, parent: Parent | None, *, may_move: bool) -> Provider:
        """Rename a provider and, if `parent` is given, move it there with its whole subtree.

        `may_move` allows leaving a parent (microversion 1.37). Raises NotFound, BadRequest, Conflict; what
        the import of a node made stays as it is.
        """
        prefix = f"Unable to save resource provider {uuid}: "

        def work(transaction: Transaction) -> Provider:
            if parent is not None:
                providers.lock_trees(transaction, shared=False)
            locked = lock(transaction, uuid)
            _check_import(transaction, locked, name, parent, prefix)
            former = None if parent is None else provider_rows.find(transaction, uuid)
            if parent is not None:
                _move(transaction, locked, parent, prefix, may_move=may_move)
            if providers.name_taken(transaction, name, other_than=locked.id):
                raise Conflict(f"Conflicting resource provider {name} already exists.", code=_DUPLICATE)
            providers.rename(transaction, locked.id, name)
            updated = provider_rows.find(transaction, uuid)
            assert updated is not None
            before = {**_described(former or updated), "name": locked.name}
            transaction.record(Action.UPDATE, Kind.PROVIDER, uuid, before=before, after=_described(updated))
            return updated

        return attempt(self._database, work)

    def delete(self, uuid: str) -> None:
        """Delete a leaf without allocations that no imported node consists of. Raises NotFound, Conflict."""

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

        attempt(self._database, work)


def _described(provider: Provider) -> dict[str, str | None]:
    return {"name": provider.name, "parent_provider_uuid": provider.parent_uuid}


def missing(uuid: str) -> NotFound:
    """The error for a path that names no provider."""
    return NotFound(f"No resource provider with uuid {uuid} found")


def lock(transaction: Transaction, uuid: str) -> LockedProvider:
    """The provider with its row locked. Raises NotFound."""
    locked = providers.lock(transaction, uuid)
    if locked is None:
        raise missing(uuid)
    return locked


def _node_of(transaction: Transaction, locked: LockedProvider) -> str | None:
    """`cluster/node` of the node whose import made the provider; None for other providers below its host."""
    return None if locked.cluster_id is None else clusters.node_on(transaction, locked.root_id)


def _check_import(
    transaction: Transaction, locked: LockedProvider, name: str, parent: Parent | None, prefix: str
) -> None:
    """Raises Conflict for changes that would break the tree of an imported node."""
    if locked.cluster_id is None:
        return
    stored = provider_rows.find(transaction, locked.uuid)
    assert stored is not None
    wanted = stored.parent_uuid if parent is None else parent.uuid and (normalize_uuid(parent.uuid) or "")
    if (name, wanted) == (stored.name, stored.parent_uuid):
        return
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
    if parent.uuid is None:
        if locked.parent_id is None:
            return
        if not may_move:
            raise BadRequest(f"{prefix}{_UPDATE}un-parenting a provider is not currently allowed.")
        providers.move(transaction, locked, None, providers.subtree(transaction, locked))
        return
    target = _locked_parent(transaction, parent.uuid, prefix)
    if target.id == locked.parent_id:
        return
    members = providers.subtree(transaction, locked)
    if locked.parent_id is not None and not may_move:
        raise BadRequest(f"{prefix}{_UPDATE}re-parenting a provider is not currently allowed.")
    if target.id in members:
        raise BadRequest(f"{prefix}{_UPDATE}creating loop in the provider tree is not allowed.")
    providers.move(transaction, locked, target, members)
