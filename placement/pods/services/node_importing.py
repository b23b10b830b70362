"""Writing imported nodes, many at a time, inside a transaction that has locked their cluster."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS
from placement.allocations.statements import consumers
from placement.common.manifest import ManifestError
from placement.common.pod_identity import consumer_of
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict, PlacementError, RequestPlace, Unavailable
from placement.engine.domain.inventories import Inventory
from placement.pods.state.host import NodeOffers, Place
from placement.pods.state.model import NodeImport
from placement.pods.state.node_info import (
    CpuOwner,
    NodeAllocations,
    NodeInfo,
    UnitsByPlace,
    beyond_offers,
    bound_shares,
    counted,
    holders,
    reported_pods,
)
from placement.pods.store import statements
from placement.pods.store.accounts import stored_accounts
from placement.pods.store.audit import came_and_left
from placement.pods.store.loader import UNREADABLE, ClusterFacts, NodeDescription, NodeLoader, facts_of
from placement.pods.store.topologies import canonical_report
from placement.pods.store.writer import NodeChange, NodeChanged, PodAttributes, PodWriter
from placement.providers.statements import clusters, contents, names, providers
from placement.providers.statements.clusters import Cluster, NewNode, Node
from placement.providers.trees import InTheWay, TreeChange, TreeRefused, bring_about, remove
from placement.storage.database import Transaction

_EMPTY = NodeAllocations()
# Services on several machines write times; their clocks differ by less than this.
_CLOCKS_DIFFER = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """The outcome of an import: whether the node is new, its changes, warnings about its manifests."""

    created: bool
    change: TreeChange
    warnings: tuple[str, ...]


class NodeStopped(Exception):
    """An error for a node that failed after writing began: the transaction has to begin again without it."""

    def __init__(self, place: int, error: PlacementError) -> None:
        super().__init__(str(error))
        self.place = place
        self.error = error


@dataclass(slots=True)
class Importing:
    """A node to import: its manifests as they are read, and the findings of each step."""

    node_import: NodeImport
    node: dict[str, Any]
    topology: dict[str, Any] | None
    # The stored manifests that completed the ones sent, none for a new node; None where nothing did.
    completed_from: tuple[Any, ...] | None = None
    known_node: Node | None = None
    description: NodeDescription | None = None
    node_info: NodeInfo | None = None
    # The former machine of that name, and the rows of the pods and reservations that stay with the name.
    former_node: NodeInfo | None = None
    staying: Sequence[int] = ()
    allocations_before: NodeAllocations = _EMPTY
    allocations_after: NodeAllocations = _EMPTY
    # Whether anything of it has been written.
    is_begun: bool = False
    root_id: int = 0
    change: TreeChange = field(default_factory=TreeChange)

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.node_import.name

    @property
    def is_same(self) -> bool:
        """Return whether the manifests equal the stored ones."""
        known = self.known_node
        return known is not None and (known.manifest, known.topology_manifest) == (self.node, self.topology)

    @property
    def described(self) -> NodeDescription:
        """Return the description by its manifests, beside its tree; it is known from the first step on."""
        assert self.description is not None
        return self.description


def predates_settings(node: Node, cluster: Cluster) -> bool:
    """Return whether a node may have been imported before the settings of its cluster were changed last."""
    return cluster.changed_at is not None and node.imported_at <= cluster.changed_at + _CLOCKS_DIFFER


@dataclass(slots=True)
class NodeImporting:
    """An import of some nodes of a cluster; `former_facts` are its facts when the stored trees were made.

    `cuts`: a node that offers less than is held of it is taken, not refused. `ids` has the ids of the nodes.
    """

    transaction: Transaction
    cluster: Cluster
    loader: NodeLoader
    writer: PodWriter
    attributes: PodAttributes
    cuts: bool
    former_facts: ClusterFacts | None = None
    ids: dict[str, int] = field(default_factory=dict, init=False)

    def run(self, nodes: Mapping[int, Importing]) -> dict[int, ImportedNode | PlacementError]:
        """Import the nodes, by place, and return the outcome of each. Raises NodeStopped, NodeChanged."""
        # 1. Stored nodes are locked and loaded; former machines of their names leave.
        self._load(nodes)
        for place, importing in nodes.items():
            with self._concerning(place):
                self._remove_former(importing)
        # 2. Consumers give back what the nodes will no longer have.
        self._settle(nodes)
        for place, importing in nodes.items():
            with self._concerning(place):
                self._shrink(importing)
        # 3. Trees of providers.
        outcomes: dict[int, ImportedNode | PlacementError] = dict(self._bring_about(nodes))
        going = {place: importing for place, importing in nodes.items() if place not in outcomes}
        # 4. Rows of nodes, and of the pods that stay with their names.
        self._save(going)
        for importing in going.values():
            statements.put_on(self.transaction, self.ids[importing.name], importing.staying)
        # 5. Consumers get what they have on the nodes from now on.
        for place, importing in going.items():
            with self._concerning(place):
                self._write(importing, importing.allocations_before, importing.allocations_after)
            outcomes[place] = _outcome(importing)
        if any(importing.is_begun or importing.change.lost for importing in going.values()):
            names.remove_unused(self.transaction)
        return outcomes

    @contextmanager
    def _concerning(self, place: int) -> Iterator[None]:
        """Raise NodeStopped for a refusal, which concerns one node. Unavailable concerns all nodes."""
        try:
            yield
        except Unavailable:
            raise
        except PlacementError as error:
            raise NodeStopped(place, error) from error

    # -- what is stored -----------------------------------------------------------------------------

    def _load(self, nodes: Mapping[int, Importing]) -> None:
        """Lock the hosts of the known nodes, and load these nodes."""
        transaction, facts = self.transaction, facts_of(self.cluster)
        former_facts = self.former_facts or facts
        names_sent = [importing.name for importing in nodes.values()]
        known = clusters.find_nodes(transaction, self.cluster.id, names_sent)
        for importing in nodes.values():
            importing.known_node = known.get(importing.name)
            stored_now: tuple[Any, ...] = ()
            if importing.known_node is not None:
                stored_now = (importing.known_node.manifest, importing.known_node.topology_manifest)
            if importing.completed_from not in (None, stored_now):
                raise NodeChanged("Another writer imported the node while its manifests were read.")
            report = canonical_report(importing.topology)
            importing.description = self.loader.description(facts, importing.name, importing.node, report)
        stored = [
            (importing, importing.known_node)
            for importing in nodes.values()
            if importing.known_node is not None
        ]
        roots = [node.provider_id for _, node in stored]
        if not roots:
            return
        statements.lock_hosts(transaction, roots)
        try:
            loaded = self.loader.load(transaction, former_facts, roots, strict=True)
        except ManifestError:
            # The manifests sent now replace stored ones that cannot be read.
            given = {}
            for importing, node in stored:
                try:
                    report = canonical_report(node.topology_manifest)
                    self.loader.description(former_facts, node.name, node.manifest, report)
                except UNREADABLE:
                    given[node.provider_id] = importing.described
            loaded = self.loader.load(transaction, former_facts, roots, given=given)
        for importing, node in stored:
            importing.node_info = loaded[node.provider_id]

    def _remove_former(self, importing: Importing) -> None:
        """Remove the tree of a former machine of the name; its pods and reservations stay with the name.

        The Node was registered again: another object, on the same machine or on another. Only Kubernetes
        knows which of its pods run on, so all of them keep their allocations.
        """
        former_node = importing.node_info
        if former_node is None or former_node.root_uuid == importing.node_import.tree.root.uuid:
            return
        importing.staying = statements.take_off(self.transaction, former_node.id)
        _remove(self.transaction, self.writer, former_node, f"The former node {importing.name}")
        importing.former_node, importing.known_node, importing.node_info = former_node, None, None
        importing.is_begun = True

    def _settle(self, nodes: Mapping[int, Importing]) -> None:
        """Note the allocations of each consumer now, and the ones it should have afterwards."""
        known_infos = [importing.node_info for importing in nodes.values() if importing.node_info is not None]
        stored = stored_accounts(self.transaction, known_infos)
        for importing in nodes.values():
            if importing.node_info is not None:
                importing.allocations_before = stored[importing.node_info.root_id]
            node, template = importing.node_info or importing.former_node, importing.described.template
            recorded = () if node is None else node.pods
            kept = () if node is None else node.reservations
            # Nothing but pods and reservations stays when the tree is made anew.
            others = {} if importing.node_info is None else importing.node_info.others
            reported = reported_pods(self.cluster.name, template.node_import, recorded)
            known_holders = (*recorded, *kept)
            if kept:
                known_holders = holders(template.node_import, template.offers, recorded, kept)
            importing.allocations_after = counted(template.offers, known_holders, others).accounts(reported)

    # -- writing ------------------------------------------------------------------------------------

    def _shrink(self, importing: Importing) -> None:
        """Let consumers give back amounts that the node will no longer have."""
        node = importing.node_info
        if node is None:
            return
        recorded = {holder.consumer for holder in node.holders}
        offers = (node.offers, importing.described.template.offers)
        less = shrunk(
            importing.allocations_before, importing.allocations_after, offers, recorded, cuts=self.cuts
        )
        if self._write(importing, importing.allocations_before, less):
            importing.is_begun = True
        importing.allocations_before = less

    def _bring_about(self, nodes: Mapping[int, Importing]) -> dict[int, PlacementError]:
        """Bring the trees to their new form, and return why some of them stay as they are."""
        places = {importing.node_import.tree.root.uuid: place for place, importing in nodes.items()}
        try:
            trees = bring_about(
                self.transaction,
                [importing.node_import.tree for importing in nodes.values()],
                self.cluster.id,
                cuts=self.cuts,
            )
        except TreeRefused as error:
            raise NodeStopped(places[error.root_uuid], error) from error
        refused: dict[int, PlacementError] = {}
        for uuid, outcome in trees.items():
            importing = nodes[places[uuid]]
            if not isinstance(outcome, Conflict):
                importing.root_id, importing.change = outcome
                if (
                    importing.known_node is None
                    and importing.node_import.tree.root.name not in importing.change.created
                ):
                    self._refuse_shared(places[uuid], importing)
            elif importing.is_begun:
                raise NodeStopped(places[uuid], outcome)
            else:
                refused[places[uuid]] = outcome
        return refused

    def _refuse_shared(self, place: int, importing: Importing) -> None:
        """Raise NodeStopped if the tree of a new node is that of another node, with the same uid."""
        other = clusters.nodes_on(self.transaction, [importing.node_import.tree.root.uuid]).get(
            importing.root_id
        )
        if other is not None:
            raise NodeStopped(
                place,
                Conflict(
                    f"already belongs to node {other.name!r}", place=RequestPlace("Node") / "metadata" / "uid"
                ),
            )

    def _save(self, nodes: Mapping[int, Importing]) -> None:
        """Write the rows of the nodes, and record their changes."""
        transaction, cluster = self.transaction, self.cluster
        roots = [importing.root_id for importing in nodes.values()]
        joined = contents.add_to_aggregate(transaction, roots, cluster.aggregate_uuid)
        changed = {
            importing.root_id
            for importing in nodes.values()
            if importing.root_id in joined or not importing.is_same
        }
        # Nodes that were read anew because of new settings are noted as imported again.
        reread = [
            importing.known_node
            for importing in nodes.values()
            if importing.known_node is not None
            and importing.is_same
            and predates_settings(importing.known_node, cluster)
        ]
        # Caches of the node learn of new manifests and times by the stamp of the host.
        providers.touch(transaction, (), changed | {node.provider_id for node in reread})
        for importing in nodes.values():
            if importing.root_id in changed or importing.change != TreeChange():
                self._record(importing)
        self._write_rows(nodes.values())
        clusters.note_import(transaction, [node.id for node in reread])

    def _record(self, importing: Importing) -> None:
        action = Action.CREATE if importing.known_node is None else Action.UPDATE
        after = {
            "resource_provider": importing.node_import.tree.root.uuid,
            "providers_created": len(importing.change.created),
            "providers_changed": len(importing.change.changed),
            "providers_deleted": len(importing.change.deleted),
        }
        target = f"{self.cluster.name}/{importing.name}"
        self.transaction.record(action, TargetKind.NODE, target, after=after)

    def _write_rows(self, importings: Collection[Importing]) -> None:
        """Insert rows of new nodes, and update rows of nodes with other manifests."""
        fresh, changed = [], {}
        for importing in importings:
            new_node = NewNode(importing.name, importing.root_id, importing.node, importing.topology)
            if importing.known_node is None:
                fresh.append(new_node)
            else:
                self.ids[importing.name] = importing.known_node.id
                if not importing.is_same:
                    changed[importing.known_node.id] = new_node
        self.ids |= clusters.insert_nodes(self.transaction, self.cluster.id, fresh)
        clusters.update_nodes(self.transaction, changed)

    def _write(self, importing: Importing, before: NodeAllocations, after: NodeAllocations) -> bool:
        """Write the change of allocations on a node, and return whether there is any."""
        node_import = importing.node_import
        pods = (*node_import.kubelet_pods, *node_import.reported_pods)
        reported = {consumer_of(self.cluster.name, pod.uid) for pod in pods}
        fresh = (after.shares.keys() - before.shares.keys()) & reported
        consumer_attributes = {consumer: self.attributes.kubelet_pod(consumer) for consumer in sorted(fresh)}
        if importing.former_node is not None:
            for pod in (*importing.former_node.pods, *importing.former_node.reservations):
                consumer_attributes[pod.consumer] = self.attributes.pod(pod.consumer, pod.namespace)
        node_id = self.ids[importing.name] if importing.node_info is None else importing.node_info.id
        identity = importing.described.identity
        change = NodeChange(node_id, self.cluster.id, identity, before, after, consumer_attributes)
        if not change.is_empty:
            self.writer.write(self.transaction, [change])
        return not change.is_empty


def _outcome(importing: Importing) -> ImportedNode:
    """Return the outcome of an import that is written, with warnings about amounts beyond its offers."""
    warnings = (*importing.node_import.warnings, *importing.change.warnings)
    node = importing.node_info or importing.former_node
    if node is not None:
        held: Mapping[Place, int] = {}
        if importing.node_info is not None:
            held = {**node.others, **node.beside}
        beyond = beyond_offers(importing.described.template.offers, node.holders, held)
        warnings = (*warnings, *map(str, beyond))
    return ImportedNode(importing.known_node is None, importing.change, warnings)


def withdraw(
    transaction: Transaction, writer: PodWriter, cluster: Cluster, node: NodeInfo, *, with_reservations: bool
) -> None:
    """Delete a node with a locked row, and its tree, with the CPUs that kubelet gave to pods there.

    Raises InTheWay if pods are recorded there, other consumers hold something of it, or there are
    reservations, unless these are deleted with it.
    """
    what = f"Node {node.name}"
    if node.pods:
        raise InTheWay(f"{what} still has pods.", {f"pod {pod.full_name}" for pod in node.pods})
    if node.reservations and not with_reservations:
        kept = {f"reservation {each.name}" for each in node.reservations}
        raise InTheWay(f"{what} still has reservations.", kept)
    if node.reservations:
        uids = {each.uid for each in node.reservations}
        rows = statements.reservations(transaction, cluster.id, uids)
        statements.delete(transaction, [row.id for row in rows])
        transaction.records.extend(came_and_left(cluster.name, rows, ()))
    _remove(transaction, writer, node, what)
    # Reservations without allocations were not deleted with their allocations.
    consumers.delete_idle(transaction, {each.consumer for each in node.reservations})


def _remove(transaction: Transaction, writer: PodWriter, node: NodeInfo, what: str) -> None:
    """Delete a node that has no rows of pods any more. Raises InTheWay if other consumers hold some of it."""
    stored = stored_accounts(transaction, [node])[node.root_id]
    change = NodeChange(node.id, node.cluster_id, node.identity, stored, _EMPTY, {})
    if not change.is_empty:
        writer.write(transaction, [change])
    clusters.delete_node(transaction, node.id)
    remove(transaction, node.root_id, what)


def shrunk(
    former_allocations: NodeAllocations,
    later_allocations: NodeAllocations,
    offers: tuple[NodeOffers, NodeOffers],
    recorded: Collection[str],
    *,
    cuts: bool = False,
) -> NodeAllocations:
    """Return the allocations that stay when consumers have given back amounts that the node will lack.

    The node changes from the first offers to the second; `later_allocations` are its allocations after that.
    CPUs that kubelet no longer reports are given back, and costs of bound CPUs above the new ratio.
    `recorded` pods (consumers) give back no CPU and no other amount, so that a node which shrinks below them
    is refused. With `cuts`, they are cut to the amounts of the node, like pods that are reported on a node
    with too little.
    """
    old, new = offers
    keeping = set() if cuts else set(recorded)
    owned: dict[str, set[int]] = {}
    for cpu, owner in former_allocations.cpus.items():
        owned.setdefault(owner.consumer, set()).add(cpu)
    shares: dict[str, UnitsByPlace] = {}
    for consumer, held in former_allocations.shares.items():
        keeps = consumer in keeping
        wanted_shares = later_allocations.shares.get(consumer, {})
        if keeps:
            wanted_shares = _uncut(wanted_shares, new, owned.get(consumer, set()))
        shares[consumer] = {}
        for place, amount in held.items():
            # Amounts of these classes follow from the CPUs that a pod owns.
            follows = place.resource_class in (CPU_CLASS, CORE_CLASS) and place in new.inventories
            less = amount
            if not keeps or (follows and consumer in owned):
                less = _less(amount, wanted_shares.get(place, 0), old.inventories.get(place))
            if less:
                shares[consumer][place] = less
    cpus = _kept_cpus(former_allocations, later_allocations, keeping)
    kept = {owner.consumer for owner in cpus.values()} | set(recorded)
    return NodeAllocations({holder: held for holder, held in shares.items() if held or holder in kept}, cpus)


def _kept_cpus(
    former_allocations: NodeAllocations, later_allocations: NodeAllocations, keeping: Collection[str]
) -> dict[int, CpuOwner]:
    """Return the CPUs that have the same owner afterwards, and all of the consumers that keep theirs."""
    return {
        cpu: owner
        for cpu, owner in former_allocations.cpus.items()
        if owner.consumer in keeping or later_allocations.cpus.get(cpu) == owner
    }


def _uncut(wanted_shares: UnitsByPlace, offers: NodeOffers, cpus: Collection[int]) -> UnitsByPlace:
    """Return the shares of a pod with these CPUs as if nothing was cut and no CPU was reserved."""
    present = frozenset(offers.cores.keys() & cpus)
    uncut = bound_shares(offers, present) | Counter(offers.cores[cpu] for cpu in present)
    return {
        **wanted_shares,
        **{place: max(amount, wanted_shares.get(place, 0)) for place, amount in uncut.items()},
    }


def _less(amount: int, wanted: int, inventory: Inventory | None) -> int:
    """Return the smaller amount that is wanted, if the inventory as it still is admits it."""
    less = min(amount, wanted)
    return amount if less and inventory is not None and not inventory.admits(less) else less
