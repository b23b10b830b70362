"""The choice and the order of what is sent to the service, so that it holds what Kubernetes has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from placement.sync.events import Journal, RejectionEvents
from placement.sync.nodes import ReconciledNodes, ReconciledReservations
from placement.sync.pods import ExpiringClaims, ReconciledPods
from placement.sync.sending import Sending
from placement.sync.service import PodId, ServiceCluster
from placement.sync.store import InformerStore, Key, ObjectKind


class Reconciler:
    """A reconciler that compares the store with what the service holds, and sends the difference.

    Order: pods that end, reservations that end, nodes that go (their pods first), nodes that come or change,
    pods that come or change, then reservations: the service finds room for these beside what runs. So room is
    given back before it is asked for, and a node is there before its pods; pods of a node that the service
    does not have wait for it. Whatever is not done when a call fails stays due.
    """

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        journal: Journal,
        lives: Callable[[PodId], bool],
        is_placed: Callable[[PodId], bool],
        namespaces: Collection[str],
        progress: Callable[[str], None],
        claim_patience: float,
        events: RejectionEvents | None = None,
    ) -> None:
        self._service = service
        self._store = store
        self._journal = journal
        self._sending = Sending(journal, lambda: progress(self.summary()), store, events)
        self._pods = ReconciledPods(service, store, self._sending, lives, namespaces)
        self._reservations = ReconciledReservations(service, store, self._sending)
        self._nodes = ReconciledNodes(service, store, self._sending, self._pods, self._reservations)
        self._claims = ExpiringClaims(service, store, self._pods, journal, is_placed, claim_patience)

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
        """Return what the service holds, in a line."""
        waiting = f", waiting {self._pods.waiting}" if self._pods.waiting else ""
        kept = f", reservations {len(self._reservations)}" if len(self._reservations) else ""
        return f"nodes {len(self._nodes)}, pods {len(self._pods)}{waiting}{kept}, rejected {self.rejected}"

    def compare(self) -> None:
        """Read what the service holds; all that may differ becomes due.

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
        self._reservations.look_at(key.name for key in reservations)
        self._nodes.look_at(key.name for key in found - pods - reservations)

    def look_at_claims(self) -> None:
        """Find claims without a pod. Raises ServiceError, ApiServerError."""
        self._claims.look()

    @property
    def gathers(self) -> bool:
        """Return whether pods that are due may wait a moment for others."""
        return self._pods.gathers

    def settle(self, *, gathering: bool = False) -> int:
        """Send what is due; return how many calls changed something. Raises ServiceError; the rest stays due.

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
        changes += self._pods.put(self._nodes.has)
        return changes + self._reservations.put()

    def settle_all(self) -> None:
        """Send what is due, and conflicts again as long as some of them succeed. Raises ServiceError."""
        self.settle()
        while conflicts := self._sending.rejections.ripen():
            self.look_at(conflicts)
            if not self.settle():
                return
