"""The order in which the differences between Kubernetes and the service are sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from placement.sync.events import RejectionEvents
from placement.sync.expiring_claims import ExpiringClaims
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.own_claims import OwnClaims
from placement.sync.reconciled_nodes import ReconciledNodes
from placement.sync.reconciled_pods import PodLookup, ReconciledPods
from placement.sync.reconciled_reservations import ReconciledReservations
from placement.sync.sending import ReservationListener, Sending
from placement.sync.service import ServiceCluster
from placement.sync.watched_objects import Key, ObjectKind


class Reconciler:
    """The comparison of the store with the objects of the service, and the sending of the differences.

    Order: pods that end, reservations that end, nodes that go, nodes that come or change, pods that come or
    change, then reservations: the service finds room for these beside running pods. So room is given back
    before it is asked for, and a node is there before its pods; pods of a node that the service does not have
    wait for it. A node that was sent closed is opened once its own pods are sent, not once all are: the pods
    of a large cluster take minutes. Whatever is not done when a call fails stays due.
    """

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        journal: Journal,
        asked: PodLookup,
        namespaces: Collection[str],
        progress: Callable[[str], None],
        claim_patience: float,
        events: RejectionEvents | None = None,
        own: OwnClaims | None = None,
        made_room: Callable[[], None] = lambda: None,
        reserved: ReservationListener = lambda _, __: None,
    ) -> None:
        self._service = service
        self._store = store
        self._journal = journal
        self._sending = Sending(journal, lambda: progress(self.summary()), store, events, made_room, reserved)
        self._pods = ReconciledPods(service, store, self._sending, asked, namespaces, own or OwnClaims())
        self._reservations = ReconciledReservations(service, store, self._sending)
        self._nodes = ReconciledNodes(service, store, self._sending, self._pods, self._reservations)
        self._claims = ExpiringClaims(service, store, self._pods, journal, asked, claim_patience)

    @property
    def rejected(self) -> int:
        """Return how many things the service refuses as they are."""
        return len(self._sending.rejections)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of nodes, pods and reservations held, and of pods that wait for their node."""
        return {
            "nodes": len(self._nodes),
            "pods": len(self._pods),
            "reservations": len(self._reservations),
            "waiting": self._pods.waiting,
        }

    def summary(self) -> str:
        """Return the numbers of objects of the service, in a line."""
        waiting = f", waiting {self._pods.waiting}" if self._pods.waiting else ""
        kept = f", reservations {len(self._reservations)}" if len(self._reservations) else ""
        return f"nodes {len(self._nodes)}, pods {len(self._pods)}{waiting}{kept}, rejected {self.rejected}"

    def compare(self) -> None:
        """Read the objects of the service; all that may differ become due.

        Raises ServiceError, ApiServerError.
        """
        if self._service.create_if_missing():
            self._journal.note("the cluster is new")
        self._sending.rejections.forgive()
        self._nodes.compare()
        self._reservations.compare()
        self._pods.compare()
        self.look_at(self._store.keys())

    def look_at(self, keys: Iterable[Key]) -> None:
        """Note objects that may have changed."""
        found = set(keys)
        pods = {key for key in found if key.kind is ObjectKind.POD}
        self._pods.look_at(pods)
        reservations = {key for key in found if key.kind is ObjectKind.RESERVATION}
        self._reservations.look_at(reservations)
        # A topology is sent with its node.
        self._nodes.look_at(Key(ObjectKind.NODE, "", key.name) for key in found - pods - reservations)

    def look_at_claims(self) -> None:
        """Find claims without a pod. Raises ServiceError, ApiServerError."""
        self._claims.look()

    @property
    def gathers(self) -> bool:
        """Return whether pods that are due may wait a moment for others."""
        return self._pods.gathers

    def settle(self, *, gathering: bool = False) -> int:
        """Send the due objects; return how many calls changed something.

        Raises ServiceError, ApiServerError; the rest stays due.

        With `gathering`, pods that come one after another wait for each other, and reservations for them.
        Calls that give back room do not wait.
        """
        self._pods.end(self._store.ended())
        self.look_at(self._sending.rejections.ripe())
        changes = self._pods.release_ended()
        changes += self._reservations.delete_gone()
        changes += self._nodes.delete_gone()
        changes += self._nodes.put()
        if gathering and self.gathers:
            return changes
        for taken, complete in self._pods.put(self._nodes.has):
            changes += taken + self._nodes.open(complete)
        changes += self._nodes.open()
        return changes + self._reservations.put()

    def settle_all(self) -> None:
        """Send the due objects, and conflicts again as long as some of them succeed.

        Raises ServiceError, ApiServerError.
        """
        self.settle()
        while conflicts := self._sending.rejections.ripen():
            self.look_at(conflicts)
            if not self.settle():
                return
