"""The choice of less important pods to evict, so that a pod fits and no pod goes in vain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from placement.common.pod_identity import canonical_uid
from placement.engine.domain import request_scope
from placement.engine.domain.portions import portions
from placement.engine.numa.host import Refusal, RefusalClass
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.services.place_choice import PlaceChoice
from placement.pods.services.pods import Pods
from placement.pods.state.model import PodSpec
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store import statements
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.statements import PodPriority
from placement.storage.database import Database

# Volumes that any node can give any pod.
_LOCAL_VOLUMES = frozenset(
    {"name", "configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
)
# The scheduler waits for the answer, and takes one node of it; it proposes no more itself in most clusters.
ENOUGH_NODES = 100
# Priorities are integers of 32 bits.
_LOWEST_PRIORITY = -(2**31)

FitsWithout = Callable[[frozenset[str]], bool]
"""A check whether the pod fits when these consumers are gone."""
Refresh = Callable[[str], bool]
"""A call that updates what is known of the pods of a node, and returns whether that changed anything."""


class Victims(NamedTuple):
    """Pods to be evicted from a node, by uid, and how many disruption budgets that violates."""

    uids: Sequence[str]
    violations: int = 0


class PreemptionChoice(NamedTuple):
    """A node, and the pods to be evicted from it, most important first; `reason` says why, or why none is.

    `violations` counts the victims that a disruption budget protects.
    """

    node: str | None
    pods: Sequence[PodPriority]
    violations: int
    reason: str

    @property
    def rank(self) -> tuple[int, float, int, int]:
        """Return how much it costs; the least is best.

        Fewer violations come first, then a less important victim as the most important one, then the smaller
        sum of priorities, then fewer victims. Sums count priorities from the lowest possible one, so that no
        victim makes a sum smaller. Source: kube-scheduler, plugin DefaultPreemption.
        """
        priorities = [pod.priority for pod in self.pods]
        total = sum(priority - _LOWEST_PRIORITY for priority in priorities)
        return self.violations, max(priorities, default=-math.inf), total, len(priorities)


@dataclass(frozen=True, slots=True)
class _Preemptor:
    """The pod that looks for a place."""

    document: PodDocument
    pod_spec: PodSpec
    priority: int

    def less_important(self, pods: Iterable[PodPriority]) -> list[PodPriority]:
        """Return the pods that may be evicted for it, in their order."""
        return [pod for pod in pods if pod.priority < self.priority]


class Preemption:
    """The choice of victims: on the nodes that a scheduler proposes for preemption, or on the best node."""

    for_bound_callers = True

    def __init__(self, database: Database, cluster_cache: ClusterCache, pods: Pods) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._pods = pods
        # It remembers nodes without their victims, of which others must not know.
        self._choice = PlaceChoice()

    def victims(
        self, cluster: str, pod: Mapping[str, Any], proposed: Mapping[str, Victims], refresh: Refresh
    ) -> dict[str, Victims]:
        """Return the victims on each proposed node that let the pod fit there, by name of node.

        Nodes are left out where evicting less important pods does not help, and where the pod fits without
        victims. The rest is left out when a hundred nodes were looked at and there is a choice, or when time
        is up or the caller is gone. `refresh` is called where the proposal is not enough.
        Raises NotFound for the cluster, ManifestError.
        """
        preemptor = _preemptor(self._cluster_cache.snapshot(cluster), pod)
        if preemptor is None:
            return {}
        found: dict[str, Victims] = {}
        for looked_at, (node_name, proposed_victims) in enumerate(proposed.items()):
            if (found and looked_at >= ENOUGH_NODES) or _must_end():
                break
            chosen = self._chosen(
                self._cluster_cache.snapshot(cluster), preemptor, node_name, proposed_victims
            )
            # A pod that has ended but was not reported yet must not cost another pod its place.
            if not (chosen and set(chosen) <= set(proposed_victims.uids)) and refresh(node_name):
                chosen = self._chosen(
                    self._cluster_cache.snapshot(cluster), preemptor, node_name, proposed_victims
                )
            if chosen:
                found[node_name] = Victims(chosen, proposed_victims.violations)
        return found

    def choice(
        self,
        cluster: str,
        pod: Mapping[str, Any],
        protected: Collection[str] = (),
        node_names: Collection[str] | None = None,
    ) -> PreemptionChoice:
        """Return the node from which the fewest and least important pods must go so that the pod fits there.

        Nothing is written. `protected` are the uids of pods with disruption budgets that allow no more: they
        stay where others can go instead. `node_names`: only these nodes count. If the pod fits somewhere, no
        pod goes. Nodes come by name, a hundred at a time until there is a choice, while time and caller last.
        Raises NotFound for the cluster, and where it has none of the nodes; ManifestError.
        """
        preview = self._pods.preview(cluster, pod, node_names, most=1, knows_nodes=True)
        for placement in preview.placements:
            return PreemptionChoice(placement.node.name, (), 0, "the pod fits there as it is")
        snapshot = self._cluster_cache.snapshot(cluster)
        preemptor = _preemptor(snapshot, pod)
        if preemptor is None:
            return _no_choice("the preemptionPolicy of the pod is Never")
        names = _where_eviction_may_help(preview.refusals)
        if not names:
            return _no_choice(f"evicting pods would help on no node: {preview.message}")
        uids = frozenset(map(canonical_uid, protected))
        columns = self._pods.nodes_without(snapshot, preemptor.document)
        looked_at = 0
        for some in portions(names, ENOUGH_NODES):
            choices: list[PreemptionChoice] = []
            nodes = [snapshot.by_name[name] for name in some if name in snapshot.by_name]
            with self._database.read() as connection:
                present = statements.priorities(connection, [node.id for node in nodes])
            for node in nodes:
                if _must_end():
                    break
                looked_at += 1
                candidates = preemptor.less_important(present[node.id])
                fits = self._fits_on(snapshot, preemptor, columns, node.name)
                if candidates and (way := _way(node.name, candidates, uids, fits)):
                    choices.append(way)
            if choices:
                return min(choices, key=attrgetter("rank"))
            if _must_end():
                return _no_choice(f"time was up after {looked_at} of {len(names)} nodes where it may help")
        return _no_choice(f"evicting pods would not help on {len(names)} node(s): {preview.message}")

    def _chosen(
        self, snapshot: ClusterSnapshot, preemptor: _Preemptor, node_name: str, proposed_victims: Victims
    ) -> Sequence[str] | None:
        """Return the uids of the victims, proposed ones spelled as they were; None if there is no way."""
        node = snapshot.by_name.get(node_name)
        if node is None:
            return None
        with self._database.read() as connection:
            present = statements.priorities(connection, [node.id])[node.id]
        spelled = {canonical_uid(uid): uid for uid in proposed_victims.uids}
        candidates = preemptor.less_important(present)
        lower = {one.uid: one.consumer for one in candidates}
        if any(one.uid in spelled and one.uid not in lower for one in present):
            return None
        unknown = [uid for uid in spelled if uid not in lower]
        mine = [lower[uid] for uid in spelled if uid in lower]
        columns = self._pods.nodes_without(snapshot, preemptor.document)
        fits = self._fits_on(snapshot, preemptor, columns, node_name)
        spares = None if unknown else self._spares(snapshot, preemptor, node, mine, list(spelled))
        victims = choose_victims(list(lower.values()), mine, fits, spares)
        if victims is None:
            return None
        uids = [one.uid for one in candidates if one.consumer in victims]
        return [spelled.get(uid, uid) for uid in (*unknown, *uids)]

    def _fits_on(
        self, snapshot: ClusterSnapshot, preemptor: _Preemptor, columns: NodeColumns, node_name: str
    ) -> FitsWithout:
        """Return the check of one node; `columns` are all nodes of the cluster, without the pod on them."""

        def fits(going: frozenset[str]) -> bool:
            after = columns.updated([columns.by_name[node_name].without(going)])
            ranking = self._choice.ranking(preemptor.pod_spec, preemptor.document, snapshot, after)
            return not ranking.refusals(after.among([node_name]))

        return fits

    def _spares(
        self,
        snapshot: ClusterSnapshot,
        preemptor: _Preemptor,
        node: NodeInfo,
        proposed: Sequence[str],
        uids: Sequence[str],
    ) -> FitsWithout | None:
        """Return a check that victims free no less than the proposed consumers; None if more matters."""
        with self._database.read() as connection:
            manifests = statements.pod_manifests(connection, snapshot.facts.id, uids)
        if not only_resources_matter(preemptor.document.manifest, manifests):
            return None
        requests = {pod.consumer: Counter(pod.requests) + Counter(pods=1) for pod in node.pods}

        def freed(going: Collection[str]) -> Counter[str]:
            return sum((requests.get(pod, Counter()) for pod in going), Counter[str]())

        least = freed(proposed)
        return lambda going: freed(going) >= least


def _preemptor(snapshot: ClusterSnapshot, pod: Mapping[str, Any]) -> _Preemptor | None:
    """Return the pod that looks for a place; None if it evicts none. Raises ManifestError."""
    document = PodDocument.unnamed(snapshot.facts.name, pod)
    pod_spec, spec = reading_of(document.manifest, snapshot.facts.settings), _mapping(pod.get("spec"))
    if spec.get("preemptionPolicy") == "Never":
        return None
    named = spec.get("priority")
    priority = named if isinstance(named, int) and not isinstance(named, bool) else 0
    return _Preemptor(document, pod_spec, priority)


def _must_end() -> bool:
    return request_scope.is_over() or request_scope.caller_is_gone()


def _no_choice(reason: str) -> PreemptionChoice:
    return PreemptionChoice(None, (), 0, reason)


def _where_eviction_may_help(refusals: Mapping[str, Refusal]) -> list[str]:
    """Return the nodes, by name, that refuse for what pods hold there: not for labels or taints, say."""
    return sorted(name for name, each in refusals.items() if each.refusal_class is RefusalClass.UNSCHEDULABLE)


def _way(
    node_name: str, less_important_pods: Sequence[PodPriority], protected: Collection[str], fits: FitsWithout
) -> PreemptionChoice | None:
    """Return which of these pods, most important first, have to go from a node; None if that does not help.

    Protected ones are spared first. Source: kube-scheduler, plugin DefaultPreemption.
    """
    in_order = sorted(less_important_pods, key=lambda pod: pod.uid not in protected)
    chosen = choose_victims([pod.consumer for pod in in_order], (), fits, None)
    if chosen is None:
        return None
    victims = [pod for pod in less_important_pods if pod.consumer in chosen]
    violations = sum(pod.uid in protected for pod in victims)
    return PreemptionChoice(node_name, victims, violations, "the pod fits there once the victims are gone")


def choose_victims(
    candidates: Sequence[str], proposed: Collection[str], fits: FitsWithout, spares_fits: FitsWithout | None
) -> frozenset[str] | None:
    """Return the candidates that have to go, none needlessly; None if evicting all of them does not help.

    `candidates` come most important first and contain the `proposed` ones. If these are enough, they are the
    answer. Otherwise they all go, and others in addition. But if `spares_fits` is given they may stay, while
    it returns that the victims chosen instead free no less.
    """
    proposal = frozenset(proposed)
    if fits(proposal):
        return proposal
    all_candidates = frozenset(candidates)
    if not fits(all_candidates):
        return None
    others = [candidate for candidate in candidates if candidate not in proposal]
    if spares_fits is None:
        return _without_needless(others, all_candidates, fits)
    mine = [candidate for candidate in candidates if candidate in proposal]

    def both(going: frozenset[str]) -> bool:
        return spares_fits(going) and fits(going)

    ways = [
        _without_needless(last, _without_needless(first, all_candidates, both), both)
        for first, last in ((others, mine), (mine, others))
    ]
    return min(ways, key=len)


def _without_needless(group: Sequence[str], victims: frozenset[str], fits: FitsWithout) -> frozenset[str]:
    """Return the victims without members of the group that need not go; halves of it are tried at once."""
    if not group:
        return victims
    fewer = victims.difference(group)
    if fits(fewer):
        return fewer
    if len(group) == 1:
        return victims
    middle = len(group) // 2
    return _without_needless(group[middle:], _without_needless(group[:middle], victims, fits), fits)


def only_resources_matter(pod: Mapping[str, Any], victims: Collection[Mapping[str, Any]]) -> bool:
    """Return whether only resources can be the reason why these victims were proposed for the pod.

    Ports, volumes and rules of pods about each other are left to kube-scheduler.
    """
    spec = _mapping(pod.get("spec"))
    affinity = _mapping(spec.get("affinity"))
    containers = [*_mappings(spec.get("containers")), *_mappings(spec.get("initContainers"))]
    others = [_mapping(_mapping(victim.get("spec")).get("affinity")) for victim in victims]
    return not (
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
        or spec.get("hostNetwork")
        or any(port.get("hostPort") for each in containers for port in _mappings(each.get("ports")))
        or any(volume.keys() - _LOCAL_VOLUMES for volume in _mappings(spec.get("volumes")))
        or any(other.get("podAntiAffinity") for other in others)
    )


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, empty instead of anything else: much of a manifest is not checked."""
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(member) for member in value] if isinstance(value, list) else []
