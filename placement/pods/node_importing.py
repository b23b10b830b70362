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
from placement.engine.domain.errors import Conflict, PlacementError, Unavailable
from placement.pods import statements
from placement.pods.cache import (
    UNREADABLE,
    ClusterFacts,
    NodeDescription,
    NodeLoader,
    canonical_report,
    facts_of,
)
from placement.pods.host import NodeOffers
from placement.pods.model import NodeImport
from placement.pods.node_info import (
    NodeAllocations,
    NodeInfo,
    Shares,
    beyond_offers,
    bound_shares,
    counted,
    holders,
    reported_pods,
)
from placement.pods.rows import came_and_left, stored_accounts
from placement.pods.writer import NodeChange, NodeChanged, PodAttributes, PodWriter
from placement.providers.statements import clusters, contents, names, providers
from placement.providers.statements.clusters import Cluster, NewNode, Node
from placement.providers.trees import InTheWay, TreeChange, TreeRefused, bring_about, remove
from placement.storage.database import Transaction

_EMPTY = NodeAllocations()
# Services on several machines write times; their clocks differ by less than this.
_CLOCKS_DIFFER = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """The outcome of an import: whether the node is new, what changed, warnings about its manifests."""

    created: bool
    change: TreeChange
    warnings: tuple[str, ...]


class NodeStopped(Exception):
    """An error for a node that failed after writing began: the transaction has to begin again without it."""

    def __init__(self, place: int, reason: PlacementError) -> None:
        super().__init__(str(reason))
        self.place = place
        self.reason = reason


@dataclass(slots=True)
class Importing:
    """A node to import: what its manifests say, and what is found out about it step by step."""

    imported: NodeImport
    node: dict[str, Any]
    topology: dict[str, Any] | None
    # The stored manifests that completed the ones sent, none for a new node; None where nothing did.
    completed_from: tuple[Any, ...] | None = None
    known: Node | None = None
    description: NodeDescription | None = None
    state: NodeInfo | None = None
    # The former machine of that name, and the rows of the pods and reservations that stay with the name.
    former: NodeInfo | None = None
    staying: Sequence[int] = ()
    before: NodeAllocations = _EMPTY
    after: NodeAllocations = _EMPTY
    # Whether anything of it has been written.
    is_begun: bool = False
    root_id: int = 0
    change: TreeChange = field(default_factory=TreeChange)

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.imported.name

    @property
    def is_same(self) -> bool:
        """Return whether the manifests equal the stored ones."""
        known = self.known
        return known is not None and (known.manifest, known.topology_manifest) == (self.node, self.topology)

    @property
    def described(self) -> NodeDescription:
        """Return what its manifests say beyond its tree; it is known from the first step on."""
        assert self.description is not None
        return self.description


def predates_settings(known: Node, cluster: Cluster) -> bool:
    """Return whether a node may have been imported before the settings of its cluster were changed last."""
    return cluster.changed_at is not None and known.imported_at <= cluster.changed_at + _CLOCKS_DIFFER


@dataclass(slots=True)
class NodeImporting:
    """An import of some nodes of a cluster; `former` has its facts when the stored trees were made.

    `cuts`: a node that offers less than is held of it is taken, not refused. `ids` has the ids of the nodes.
    """

    transaction: Transaction
    cluster: Cluster
    loader: NodeLoader
    writer: PodWriter
    attributes: PodAttributes
    cuts: bool
    former: ClusterFacts | None = None
    ids: dict[str, int] = field(default_factory=dict, init=False)

    def run(self, nodes: Mapping[int, Importing]) -> dict[int, ImportedNode | PlacementError]:
        """Import the nodes, by place, and return the outcome of each. Raises NodeStopped, NodeChanged."""
        self._load(nodes)
        for place, each in nodes.items():
            with self._concerning(place):
                if each.state is not None and each.state.root_uuid != each.imported.tree.root.uuid:
                    # The Node was registered again: another object, on the same machine or on another. Only
                    # Kubernetes knows which of its pods run on, so all of them keep what they hold.
                    each.staying = statements.take_off(self.transaction, each.state.id)
                    _remove(self.transaction, self.writer, each.state, f"The former node {each.name}")
                    each.former, each.known, each.state = each.state, None, None
                    each.is_begun = True
        self._settle(nodes)
        for place, each in nodes.items():
            with self._concerning(place):
                self._shrink(each)
        outcomes: dict[int, ImportedNode | PlacementError] = dict(self._bring_about(nodes))
        going = {place: each for place, each in nodes.items() if place not in outcomes}
        self._save(going)
        for each in going.values():
            statements.put_on(self.transaction, self.ids[each.name], each.staying)
        for place, each in going.items():
            with self._concerning(place):
                self._write(each, each.before, each.after)
            warnings = (*each.imported.warnings, *each.change.warnings)
            state = each.state or each.former
            if state is not None:
                held = {} if each.state is None else {**state.others, **state.beside}
                beyond = beyond_offers(each.described.template.offers, state.holders, held)
                warnings = (*warnings, *beyond)
            outcomes[place] = ImportedNode(each.known is None, each.change, warnings)
        if any(each.is_begun or each.change.lost for each in going.values()):
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
        former = self.former or facts
        known = clusters.find_nodes(transaction, self.cluster.id, [each.name for each in nodes.values()])
        for each in nodes.values():
            each.known = known.get(each.name)
            stored_now = () if each.known is None else (each.known.manifest, each.known.topology_manifest)
            if each.completed_from not in (None, stored_now):
                raise NodeChanged("Another writer imported the node while its manifests were read.")
            report = canonical_report(each.topology)
            each.description = self.loader.description(facts, each.name, each.node, report)
        stored = [(each, each.known) for each in nodes.values() if each.known is not None]
        roots = [node.provider_id for _, node in stored]
        if not roots:
            return
        statements.lock_hosts(transaction, roots)
        try:
            states = self.loader.load(transaction, former, roots, strict=True)
        except ManifestError:
            # The manifests sent now replace stored ones that cannot be read.
            given = {}
            for each, node in stored:
                try:
                    report = canonical_report(node.topology_manifest)
                    self.loader.description(former, node.name, node.manifest, report)
                except UNREADABLE:
                    given[node.provider_id] = each.described
            states = self.loader.load(transaction, former, roots, given=given)
        for each, node in stored:
            each.state = states[node.provider_id]

    def _settle(self, nodes: Mapping[int, Importing]) -> None:
        """Find out what each consumer holds now, and what it should hold afterwards."""
        states = [each.state for each in nodes.values() if each.state is not None]
        stored = stored_accounts(self.transaction, states)
        for each in nodes.values():
            if each.state is not None:
                each.before = stored[each.state.root_id]
            state, template = each.state or each.former, each.described.template
            recorded = () if state is None else state.pods
            kept = () if state is None else state.reservations
            # Nothing but pods and reservations stays when the tree is made anew.
            others = {} if each.state is None else each.state.others
            reported = reported_pods(self.cluster.name, template.imported, recorded)
            known_holders = (*recorded, *kept)
            if kept:
                known_holders = holders(template.imported, template.offers, recorded, kept)
            each.after = counted(template.offers, known_holders, others).accounts(reported)

    # -- writing ------------------------------------------------------------------------------------

    def _shrink(self, each: Importing) -> None:
        """Take from consumers what the node will no longer have."""
        state = each.state
        if state is None:
            return
        recorded = {holder.consumer for holder in state.holders}
        offers = (state.offers, each.described.template.offers)
        less = shrunk(each.before, each.after, offers, recorded, cuts=self.cuts)
        if self._write(each, each.before, less):
            each.is_begun = True
        each.before = less

    def _bring_about(self, nodes: Mapping[int, Importing]) -> dict[int, PlacementError]:
        """Bring the trees to their new form, and return why some of them stay as they are."""
        places = {each.imported.tree.root.uuid: place for place, each in nodes.items()}
        try:
            trees = bring_about(
                self.transaction,
                [each.imported.tree for each in nodes.values()],
                self.cluster.id,
                cuts=self.cuts,
            )
        except TreeRefused as error:
            raise NodeStopped(places[error.root_uuid], error) from error
        refused: dict[int, PlacementError] = {}
        for uuid, outcome in trees.items():
            each = nodes[places[uuid]]
            if not isinstance(outcome, Conflict):
                each.root_id, each.change = outcome
                if each.known is None and each.imported.tree.root.name not in each.change.created:
                    self._refuse_shared(places[uuid], each)
            elif each.is_begun:
                raise NodeStopped(places[uuid], outcome)
            else:
                refused[places[uuid]] = outcome
        return refused

    def _refuse_shared(self, place: int, each: Importing) -> None:
        """Raise NodeStopped if the tree of a new node is that of another node, with the same uid."""
        other = clusters.nodes_on(self.transaction, [each.imported.tree.root.uuid]).get(each.root_id)
        if other is not None:
            raise NodeStopped(place, Conflict(f"Node.metadata.uid: is that of node {other.name!r}, too"))

    def _save(self, nodes: Mapping[int, Importing]) -> None:
        """Write the rows of the nodes, and record what changed."""
        transaction, cluster = self.transaction, self.cluster
        roots = [each.root_id for each in nodes.values()]
        joined = contents.add_to_aggregate(transaction, roots, cluster.aggregate_uuid)
        news = [each for each in nodes.values() if each.root_id in joined or not each.is_same]
        # Nodes that were read anew because of new settings are noted as imported again.
        reread = [
            each.known
            for each in nodes.values()
            if each.known is not None and each.is_same and predates_settings(each.known, cluster)
        ]
        # Caches of the node learn of new manifests and times by the stamp of the host.
        touched = {each.root_id for each in news} | {node.provider_id for node in reread}
        providers.touch(transaction, (), touched)
        for each in nodes.values():
            if each.root_id in joined or not each.is_same or each.change != TreeChange():
                action = Action.CREATE if each.known is None else Action.UPDATE
                after = {
                    "resource_provider": each.imported.tree.root.uuid,
                    "providers_created": len(each.change.created),
                    "providers_changed": len(each.change.changed),
                    "providers_deleted": len(each.change.deleted),
                }
                transaction.record(action, TargetKind.NODE, f"{cluster.name}/{each.name}", after=after)
        fresh, changed = [], {}
        for each in nodes.values():
            row = NewNode(each.name, each.root_id, each.node, each.topology)
            if each.known is None:
                fresh.append(row)
            elif not each.is_same:
                changed[each.known.id] = row
        ids = clusters.insert_nodes(transaction, cluster.id, fresh)
        clusters.update_nodes(transaction, changed)
        clusters.note_import(transaction, [node.id for node in reread])
        self.ids = {
            each.name: ids[each.name] if each.known is None else each.known.id for each in nodes.values()
        }

    def _write(self, each: Importing, before: NodeAllocations, after: NodeAllocations) -> bool:
        imported = each.imported
        pods = (*imported.kubelet_pods, *imported.reported_pods)
        reported = {consumer_of(self.cluster.name, pod.uid) for pod in pods}
        fresh = (after.shares.keys() - before.shares.keys()) & reported
        bearers = {consumer: self.attributes.kubelet_pod(consumer) for consumer in sorted(fresh)}
        if each.former is not None:
            for pod in (*each.former.pods, *each.former.reservations):
                bearers[pod.consumer] = self.attributes.pod(pod.consumer, pod.namespace)
        node_id = self.ids[each.name] if each.state is None else each.state.id
        change = NodeChange(node_id, self.cluster.id, each.described.identity, before, after, bearers)
        if not change.is_empty:
            self.writer.write(self.transaction, [change])
        return not change.is_empty


def withdraw(
    transaction: Transaction, writer: PodWriter, cluster: Cluster, state: NodeInfo, *, with_reservations: bool
) -> None:
    """Delete a node with a locked row, and its tree, with the CPUs that kubelet gave to pods there.

    Raises InTheWay if pods are recorded there, other consumers hold something of it, or there are
    reservations, unless these are deleted with it.
    """
    what = f"Node {state.name}"
    if state.pods:
        raise InTheWay(f"{what} still has pods.", {f"pod {pod.full_name}" for pod in state.pods})
    if state.reservations and not with_reservations:
        kept = {f"reservation {each.name}" for each in state.reservations}
        raise InTheWay(f"{what} still has reservations.", kept)
    if state.reservations:
        uids = {each.uid for each in state.reservations}
        rows = statements.reservations(transaction, cluster.id, uids)
        statements.delete(transaction, [row.id for row in rows])
        transaction.records.extend(came_and_left(cluster.name, rows, ()))
    _remove(transaction, writer, state, what)
    # One that holds nothing, as the node has nothing any more, is not among what was given back.
    consumers.delete_idle(transaction, {each.consumer for each in state.reservations})


def _remove(transaction: Transaction, writer: PodWriter, state: NodeInfo, what: str) -> None:
    """Delete a node that has no rows of pods any more. Raises InTheWay if other consumers hold some of it."""
    stored = stored_accounts(transaction, [state])[state.root_id]
    change = NodeChange(state.id, state.cluster_id, state.identity, stored, _EMPTY, {})
    if not change.is_empty:
        writer.write(transaction, [change])
    clusters.delete_node(transaction, state.id)
    remove(transaction, state.root_id, what)


def shrunk(
    before: NodeAllocations,
    after: NodeAllocations,
    offers: tuple[NodeOffers, NodeOffers],
    recorded: Collection[str],
    *,
    cuts: bool = False,
) -> NodeAllocations:
    """Return what of the accounts before stands while a node changes from the first offers to the second.

    `after` holds once the change is made. What is not asked for any more is given back first: CPUs that
    kubelet no longer reports, and the cost of bound CPUs above that of the new ratio. Recorded pods
    (consumers) give back no CPU and no other amount, so that a node which shrinks below them is refused. With
    `cuts`, they are cut to what the node has, like pods that are reported on a node with too little.
    """
    old, new = offers
    owned: dict[str, set[int]] = {}
    for cpu, owner in before.cpus.items():
        owned.setdefault(owner.consumer, set()).add(cpu)
    shares: dict[str, Shares] = {}
    for consumer, held in before.shares.items():
        wanted = dict(after.shares.get(consumer, {}))
        if consumer in recorded and not cuts:
            # As if nothing was cut and no CPU was reserved.
            present = frozenset(owned.get(consumer, set()) & new.cores.keys())
            uncut = bound_shares(new, present) | Counter(new.cores[cpu] for cpu in present)
            for place, amount in uncut.items():
                wanted[place] = max(amount, wanted.get(place, 0))
        shares[consumer] = {}
        for place, amount in held.items():
            gives = cuts or consumer not in recorded
            if consumer in owned and place in new.inventories:
                # What a pod holds of these follows from the CPUs that it owns.
                gives = gives or place.resource_class in (CPU_CLASS, CORE_CLASS)
            less, inventory = min(amount, wanted.get(place, 0)), old.inventories.get(place)
            # The inventory as it still is must admit the smaller amount.
            if not gives or (less and inventory is not None and not inventory.admits(less)):
                less = amount
            if less:
                shares[consumer][place] = less
    cpus = {
        cpu: owner
        for cpu, owner in before.cpus.items()
        if (owner.consumer in recorded and not cuts) or after.cpus.get(cpu) == owner
    }
    kept = {owner.consumer for owner in cpus.values()} | set(recorded)
    return NodeAllocations({holder: held for holder, held in shares.items() if held or holder in kept}, cpus)
