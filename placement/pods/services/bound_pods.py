"""The confirmation that pods were bound where they have their places, by the caller that bound them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from placement.common.pod_identity import canonical_uid
from placement.pods.store import statements
from placement.pods.store.rows import is_unreadable
from placement.pods.store.writer import NodeChanged, PodWriter
from placement.providers.statements.clusters import found
from placement.storage.database import Database, retry_until_deadline


class BoundPod(NamedTuple):
    """A pod, and the node to which it was bound."""

    namespace: str
    name: str
    uid: str
    node: str


class BoundPods:
    """The confirmation of claims of pods that were bound."""

    for_bound_callers = True

    def __init__(self, database: Database, writer: PodWriter) -> None:
        self._database = database
        self._writer = writer

    def confirm(self, cluster: str, bound_pods: Sequence[BoundPod]) -> list[bool]:
        """Confirm claims as reports of the running pods do; return of each whether it is on that node.

        A pod that is not there with this name and uid, or has an unreadable row, has to be reported. All
        are written in one transaction. Allocations stay, so nodes are not stamped. Raises NotFound for the
        cluster, Unavailable.
        """
        return retry_until_deadline(partial(self._confirm, cluster, bound_pods))

    def _confirm(self, cluster: str, bound_pods: Sequence[BoundPod]) -> list[bool]:
        with self._database.write() as transaction:
            cluster_id = found(transaction, cluster).id
            # Under these locks no pod leaves its node, and no claim is renewed.
            locked = statements.lock_hosts_of(transaction, cluster_id, {each.node for each in bound_pods})
            uids = [canonical_uid(each.uid) for each in bound_pods]
            by_uid = {
                row.uid: row for row in statements.any_namesakes(transaction, cluster_id, (), set(uids))
            }
            confirmed = {}
            for uid, each in zip(uids, bound_pods, strict=True):
                row = by_uid.get(uid)
                if row is None or (row.namespace, row.name, row.node) != (
                    each.namespace,
                    each.name,
                    each.node,
                ):
                    continue
                if row.root_id not in locked:
                    raise NodeChanged(f"Node {row.node} was replaced meanwhile.")
                if not is_unreadable(row):
                    confirmed[each] = row
            self._writer.confirm(transaction, cluster, {row.id: row for row in confirmed.values()}.values())
        return [each in confirmed for each in bound_pods]
