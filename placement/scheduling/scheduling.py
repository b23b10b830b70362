"""The parts of the scheduler put together: the synchronization, the loop, and what the loop needs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from placement.scheduling.binder import PodBinder
from placement.scheduling.evictions import Evictions
from placement.scheduling.inbox import Inbox
from placement.scheduling.loop import SchedulingLoop
from placement.scheduling.pinned import PinnedPods
from placement.scheduling.reservation_telling import ReservationTeller
from placement.scheduling.rivals import Rivals
from placement.scheduling.telling import PodTeller
from placement.scheduling.volumes import Volumes
from placement.sync.api_server import ApiServer
from placement.sync.command import SynchronizationParts
from placement.sync.own_claims import OwnClaims
from placement.sync.pod_groups import PodGroups
from placement.sync.service import PodId, ServiceCluster
from placement.sync.synchronization import Synchronization
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject


class Scheduling:
    """A scheduler of one Kubernetes cluster: its synchronization, and the threads beside it."""

    def __init__(
        self,
        watching_server: ApiServer,
        writing_server: ApiServer,
        parts: SynchronizationParts,
        service: ServiceCluster,
        namespaces: Sequence[str],
        claim_patience: float,
        schedulers: Collection[str],
        *,
        replaces: bool,
    ) -> None:
        """Put it together; `watching_server` and `writing_server` reach the same API server.

        `service` is for the loop, so that its calls do not wait for the ones of the synchronization.
        `schedulers` are names by which pods ask for it. `replaces`: a pod that its own scheduler refuses may
        be deleted.
        """
        leadership, journal = parts.leadership, parts.journal
        allow = leadership.require if leadership else lambda: None
        inbox, own = Inbox(), OwnClaims()
        self.synchronization = synchronization = Synchronization(
            watching_server,
            parts.service,
            namespaces,
            journal,
            claim_patience,
            leadership,
            own,
            inbox.wake,
            lambda name, refusal: reservations.reserved(name, refusal),
        )
        store = synchronization.store
        teller, rivals = PodTeller(writing_server, allow, journal), Rivals(writing_server)

        def is_there(pod: PodId) -> bool:
            watched = store.get(Key(ObjectKind.POD, pod.namespace, pod.name))
            return watched is not None and watched.uid == pod.uid and not watched.over

        def may_place() -> bool:
            return synchronization.is_current and (leadership is None or leadership.leads)

        def saw(key: Key, watched: WatchedObject | None) -> None:
            inbox.saw(key, watched)
            reservations.saw(key, watched)

        reservations = ReservationTeller(
            writing_server, service.reservation, store.get, frozenset(schedulers), allow, may_place, journal
        )
        store.tell(saw)
        loop = SchedulingLoop(
            inbox,
            service,
            frozenset(schedulers),
            journal,
            own,
            store.get,
            PodBinder(writing_server, service, rivals, allow, inbox.finished),
            teller,
            Evictions(writing_server, service, teller, is_there, allow),
            PodGroups(store),
            Volumes(writing_server),
            rivals,
            PinnedPods(writing_server, teller, allow, journal, replaces=replaces),
            may_place,
        )
        self.threads: Sequence[threading.Thread] = (loop, teller, reservations)
