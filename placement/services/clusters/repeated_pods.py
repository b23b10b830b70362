"""Pods that are reported where they are already and hold what they held: many of them in one transaction.

That is so for every pod that was placed here before it was bound, as the scheduler extender does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from placement.domain.errors import BadRequest
from placement.kubernetes.pod_rules import may_keep_off
from placement.services.clusters.pod_audit import arrived
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_scheduler import Taken
from placement.services.clusters.pod_writing import Arrival, pod_values
from placement.services.clusters.running_pods import repeated_arrival
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.services.transactions import patiently
from placement.storage.database import Database, Transaction
from placement.storage.statements import node_rows, pods
from placement.storage.statements.pods import StoredPod


class RepeatedPods:
    """Records pods that stay as they are; it never changes what is held of a node, or by whom."""

    def __init__(self, database: Database, cluster_cache: ClusterCache) -> None:
        self._database = database
        self._cluster_cache = cluster_cache

    def record(self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]) -> dict[int, Taken]:
        """What became of those that were recorded; each of the others has to be looked at by itself.

        Where nothing is known of any of them the database is not asked. Raises Unavailable.
        """
        known = {
            number: document
            for number, document in documents.items()
            if document.host in view.by_name
            and not self._cluster_cache.may_be_new(view, (document.namespace, document.name))
        }
        return patiently(lambda: self._recorded(view, known)) if known else {}

    def _recorded(self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]) -> dict[int, Taken]:
        with self._database.write() as transaction:
            arrivals = _repeated(transaction, view, documents)
            pods.update_all(
                transaction,
                {same.id: pod_values(arrival, same.node_id, same) for same, arrival in arrivals.values()},
            )
            transaction.records.extend(
                arrived(view.facts.name, arrival.answer, same) for same, arrival in arrivals.values()
            )
        return {number: Taken(False, False, arrival.answer) for number, (_, arrival) in arrivals.items()}


def reported_once(documents: Mapping[int, PodDocument]) -> dict[int, PodDocument]:
    """Pods on nodes that keep nobody off; each is the first of its name and of its uid."""
    seen: set[object] = set()
    found: dict[int, PodDocument] = {}
    for number, document in documents.items():
        mine: set[object] = {(document.namespace, document.name), document.uid}
        runs = document.host and not document.has_ended and not may_keep_off(document.manifest)
        if runs and seen.isdisjoint(mine):
            found[number] = document
        seen |= mine
    return found


def _repeated(
    transaction: Transaction, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, tuple[StoredPod, Arrival]]:
    """Those that stay as they are, each with its row, on nodes that are locked and as in the view."""
    roots = {number: view.by_name[document.host].root_id for number, document in documents.items()}
    stamps = node_rows.lock(transaction, set(roots.values()), view.facts.id)
    stored = _rows(transaction, view, documents)
    found: dict[int, tuple[StoredPod, Arrival]] = {}
    for number, same in stored.items():
        root_id = roots[number]
        if same.root_id != root_id or stamps.get(root_id) != view.nodes[root_id].revision:
            continue
        # What is wrong with a pod is told when it is looked at by itself.
        with suppress(BadRequest):
            arrival = repeated_arrival(view, documents[number], same)
            if arrival is not None:
                found[number] = same, arrival
    return found


def _rows(
    transaction: Transaction, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, StoredPod]:
    """The rows of these pods where nobody else has their name or their uid."""
    names = {(each.namespace, each.name) for each in documents.values()}
    uids = {each.uid for each in documents.values()}
    rows = pods.any_namesakes(transaction, view.facts.id, names, uids)
    by_name = {(row.namespace, row.name): row for row in rows}
    by_uid = {row.uid: row for row in rows}
    return {
        number: by_uid[each.uid]
        for number, each in documents.items()
        if each.uid in by_uid and by_uid[each.uid] is by_name.get((each.namespace, each.name))
    }
