"""Preemption: evicting less important pods, which the service chooses, for a pod that fits nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from placement.common.pod_identity import canonical_uid
from placement.scheduling.figures import PREEMPTIONS, VICTIMS
from placement.scheduling.pending import PendingPod
from placement.scheduling.telling import PodTeller
from placement.sync.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path, pods_path
from placement.sync.service import CONFLICT, PodId, ServiceCluster

_BUDGETS = tuple(f"/apis/policy/{version}/poddisruptionbudgets" for version in ("v1", "v1beta1"))
# A victim may take its time to end; after this a pod for which it goes looks for another place.
_NOMINATED_SECONDS = 120.0
_MOST_PROTECTED = 10_000


class Nomination(NamedTuple):
    """A node that is kept for a pod until its victims are gone, or for some time, in monotonic seconds."""

    pod: PendingPod
    node: str
    victims: frozenset[PodId]
    until: float


class Evictions:
    """The nominated pods and their nodes; one thread uses it."""

    def __init__(
        self,
        api_server: ApiServer,
        service: ServiceCluster,
        teller: PodTeller,
        is_there: Callable[[PodId], bool],
        allow: Callable[[], None],
    ) -> None:
        """Prepare evictions; `allow` is called before each, and its exceptions prevent it."""
        self._api_server = api_server
        self._service = service
        self._teller = teller
        self._is_there = is_there
        self._allow = allow
        self._nominations: dict[str, Nomination] = {}

    def nominated_node(self, uid: str) -> str | None:
        """Return the node that is kept for a pod, None if none is."""
        nomination = self._nominations.get(uid)
        return nomination.node if nomination else None

    def forget(self, uid: str) -> None:
        """Note that a pod has a place, or is gone."""
        self._nominations.pop(uid, None)

    def kept_from(self, pod: PendingPod) -> set[str]:
        """Return the nodes that are kept for other pods, no less important than this one."""
        now = time.monotonic()
        for uid, nomination in list(self._nominations.items()):
            if nomination.until <= now:
                del self._nominations[uid]
        return {
            each.node
            for uid, each in self._nominations.items()
            if uid != pod.id.uid and each.pod.priority >= pod.priority
        }

    def evict_for(self, pod: PendingPod, manifest: Mapping[str, Any]) -> Nomination | None:
        """Evict pods so that this one, with that manifest, fits somewhere; return where, None if nowhere.

        It does nothing while former victims of the pod are still there. Raises ServiceError, ApiServerError,
        NotLeading.
        """
        nomination = self._nominations.get(pod.id.uid)
        if nomination is not None and any(map(self._is_there, nomination.victims)):
            return nomination
        self.forget(pod.id.uid)
        if pod.manifest["spec"].get("preemptionPolicy") == "Never":
            return None
        PREEMPTIONS.inc()
        found = self._service.preemption({"pod": manifest, "protected": self._protected()})
        if not found["node"]:
            return None
        victims = [PodId(each["namespace"], each["name"], each["uid"]) for each in found["victims"]]
        until = time.monotonic() + _NOMINATED_SECONDS
        # The node is kept before the first victim goes.
        nomination = Nomination(pod, found["node"], frozenset(victims), until)
        self._nominations[pod.id.uid] = nomination
        for victim in victims:
            self._evict(victim, pod, nomination.node)
        return nomination

    def _evict(self, victim_id: PodId, pod: PendingPod, node: str) -> None:
        path = object_path(pods_path(victim_id.namespace), victim_id.name)
        found = self._api_server.get(path)
        if found is None or canonical_uid(str(found["metadata"].get("uid") or "")) != victim_id.uid:
            return
        self._allow()
        try:
            self._api_server.delete(path, {"preconditions": {"uid": found["metadata"]["uid"]}})
        except ApiServerError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise
            return
        VICTIMS.inc()
        self._teller.evicted(victim_id, found, pod, node)

    def _protected(self) -> list[str]:
        """Return the uids of pods that disruption budgets protect at present. Raises ApiServerError."""
        found: set[str] = set()
        for budget in self._budgets():
            status, spec = budget.get("status") or {}, budget.get("spec") or {}
            selector = _as_query(spec.get("selector") or {})
            if status.get("disruptionsAllowed", 0) > 0 or selector is None:
                continue
            pods = pods_path(str(budget["metadata"]["namespace"]))
            for page in self._api_server.pages(pods, {"labelSelector": selector} if selector else {}):
                found.update(canonical_uid(str(each["metadata"].get("uid"))) for each in page.items)
        return sorted(found)[:_MOST_PROTECTED]

    def _budgets(self) -> Iterator[dict[str, Any]]:
        for path in _BUDGETS:
            try:
                for page in self._api_server.pages(path):
                    yield from page.items
            except ApiServerError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                return


_OPERATORS = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


def _as_query(selector: Mapping[str, Any]) -> str | None:
    """Return a label selector as the API server takes it in queries; None if it selects nothing known."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        form = _OPERATORS.get(each.get("operator"))
        if form is None:
            return None
        parts.append(form.format(each.get("key"), ",".join(each.get("values") or ())))
    return ",".join(parts)
