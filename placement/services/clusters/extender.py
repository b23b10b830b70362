"""What kube-scheduler asks an extender: which nodes fit a pod, how well, and to bind it to one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.pod.gang import Gang, gang_of
from placement.domain.errors import PlacementError
from placement.domain.explanation import Kind
from placement.kubernetes.pod_affinity import without_unknown_namespaces
from placement.numa.refusal import Refusal, RefusalClass
from placement.scheduling.remarks import in_plain_words
from placement.services.clusters.bind_attempt import BindAttempt, Binding
from placement.services.clusters.clusters import Clusters
from placement.services.clusters.given_up_gangs import GivenUpGangs
from placement.services.clusters.pod_documents import PodDocument, namespace_of
from placement.services.clusters.pods import Pods
from placement.services.clusters.preemption import ENOUGH_NODES, Preemption, Victims
from placement.services.clusters.vanished_pods import Binders, VanishedPods

# kube-scheduler schedules no other pod meanwhile. An API server takes some milliseconds for a node.
_LOOK_SECONDS = 1.0
_UNKNOWN_NODE = "placement does not know this node"
_NO_ROOM_FOR_GANG = "there is no room for the gang of the pod as a whole"
_CANNOT_BIND = (
    "this service cannot bind: [kubernetes] kubeconfig is not set, so it cannot create the Binding; "
    "set it, or leave bindVerb out of the scheduler's configuration"
)


@dataclass(frozen=True, slots=True)
class Filtered:
    """Why nodes do not fit, by name; the others do. Removing pods can help on `failed` nodes only."""

    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class Extender:
    """Answers kube-scheduler. Any process can answer each call.

    What a process remembers of gangs only spares claims in vain.
    """

    def __init__(
        self, clusters: Clusters, pods: Pods, preemption: Preemption, binders: Binders | None
    ) -> None:
        self._clusters = clusters
        self._pods = pods
        self._preemption = preemption
        self._binders = binders
        self._vanished = VanishedPods(pods, binders)
        self._given_up = GivenUpGangs()

    def filter(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Which of these nodes do not fit, and why. Raises NotFound for the cluster, ManifestError."""
        pod = without_unknown_namespaces(pod)
        preview = self._pods.preview(cluster, pod, names, most=0)
        nodes = _where_pods_may_have_left(pod, preview.refusals, fits=preview.fitting > 0)
        if self._has_room_after_all(
            cluster, nodes, lambda node: self._pods.preview(cluster, pod, [node], most=0).fitting > 0
        ):
            preview = self._pods.preview(cluster, pod, names, most=0)
        fitting, refusals = preview.fitting, preview.refusals
        gang = self._strict_gang(cluster, pod)
        if gang is not None:
            refused = self._refused_of_gang(cluster, gang) if fitting else {}
            if refused or not fitting:
                self._give_up(cluster, gang)
            if refused:
                mine = refused.get(PodDocument.unnamed(cluster, pod).uid)
                if mine is None:
                    return Filtered({}, dict.fromkeys(names, _NO_ROOM_FOR_GANG))
                fitting, refusals = 0, {name: mine[name] for name in names if name in mine}
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        # In one order, so that every process answers with the same bytes.
        for name, refusal in sorted(refusals.items(), key=lambda item: item[0]):
            lasting = refusal.status is RefusalClass.UNRESOLVABLE
            (unresolvable if lasting else failed)[name] = "; ".join(
                in_plain_words(reason) for reason in refusal.reasons
            )
        if fitting + len(refusals) < len(names):
            known = {name for name, _ in self._clusters.nodes(cluster)}
            unresolvable.update((name, _UNKNOWN_NODE) for name in names if name not in known)
        return Filtered(failed, unresolvable)

    def _has_room_after_all(self, cluster: str, nodes: Iterable[str], fits: Callable[[str], bool]) -> bool:
        """Whether something fits once pods on these nodes are released that are over or gone in Kubernetes.

        kube-scheduler hears of a deletion before the synchronization reports it, asks at once, and after a
        refusal asks again only minutes later. `fits` is asked about each node that pods have left.
        """
        refresh = self._vanished.refresher(cluster, ENOUGH_NODES, _LOOK_SECONDS)
        return any(refresh(node) and fits(node) for node in nodes)

    def _strict_gang(self, cluster: str, pod: Mapping[str, Any]) -> Gang | None:
        """Return the gang of a pod if it is Strict, and note that the pod is a member."""
        gang = gang_of(pod, namespace_of(pod))
        if gang is None or not gang.is_strict:
            return None
        self._given_up.note(cluster, gang, PodDocument.unnamed(cluster, pod))
        return gang

    def _give_up(self, cluster: str, gang: Gang) -> None:
        """Release the members that wait, for one has no room; a NonStrict gang does not come here."""
        self._pods.release_gang(cluster, gang)
        self._given_up.add(cluster, gang)

    def _refused_of_gang(self, cluster: str, gang: Gang) -> Mapping[str, Mapping[str, Refusal]]:
        """Return the members, by uid, that keep a gang from trying again after it gave up, and why by node.

        With room for two of three members, those would else keep that room from other pods, and in vain.
        """
        members = self._given_up.members(cluster, gang)
        refused = self._pods.refused_of_gang(cluster, gang, members) if members else {}
        if refused:
            nodes = _where_pods_may_have_left({}, next(iter(refused.values())), fits=False)
            if self._has_room_after_all(
                cluster, nodes, lambda _: not self._pods.refused_of_gang(cluster, gang, members)
            ):
                refused = {}
        if members and not refused:
            self._given_up.discard(cluster, gang)
        return refused

    def prioritize(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """The score of each of these nodes on which the pod fits, 0 to 100.

        Raises NotFound for the cluster, ManifestError.
        """
        return self._pods.scores(cluster, without_unknown_namespaces(pod), names)

    def preempt(
        self, cluster: str, pod: Mapping[str, Any], proposed: Mapping[str, Victims]
    ) -> dict[str, Victims]:
        """The pods to evict from each of the proposed nodes; nodes where eviction does not help are left out.

        Raises NotFound for the cluster, ManifestError.
        """
        return self._preemption.victims(
            cluster,
            without_unknown_namespaces(pod),
            proposed,
            self._vanished.refresher(cluster, ENOUGH_NODES),
        )

    def bind(self, cluster: str, binding: Binding) -> None:
        """Claim a place for the pod on the node, write it to the pod, and assign the pod to the node.

        In this order, so that a pod is never on a node without its CPUs. Whoever waited for it in its gang is
        bound, too. Raises PlacementError; nothing is claimed then, unless the text says so.
        """
        if self._binders is None:
            raise PlacementError(_CANNOT_BIND)
        binder = self._binders.of(cluster)
        attempt = BindAttempt(self._pods, binder, cluster, binding)
        try:
            attempt.run()
        finally:
            # Who is not bound now is when the scheduler tries again.
            for other in attempt.freed:
                with suppress(PlacementError):
                    BindAttempt(self._pods, binder, cluster, other).run()


def _where_pods_may_have_left(
    pod: Mapping[str, Any], refusals: Mapping[str, Refusal], *, fits: bool
) -> Iterator[str]:
    """The refusing nodes on which the pod may fit once pods that are gone are released, most likely first.

    If the pod `fits` elsewhere, that is only the node from which pods were evicted for it. kube-scheduler
    leaves out nodes without the amounts: a node that is refused for an amount was probably left by a pod.
    """
    nominated = str((pod.get("status") or {}).get("nominatedNodeName"))
    if nominated in refusals:
        yield nominated
    if fits:
        return
    others = [
        (refusal.obstacle.kind is not Kind.AMOUNT, name)
        for name, refusal in refusals.items()
        if refusal.status is RefusalClass.UNSCHEDULABLE and name != nominated
    ]
    yield from (name for _, name in sorted(others))
