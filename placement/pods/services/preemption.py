"""The choice of less important pods to evict, so that a pod fits and no pod goes in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from placement.common.pod_identity import canonical_uid
from placement.engine.domain import request_scope
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.services.place_choice import PlaceChoice
from placement.pods.services.pods import Pods
from placement.pods.state.model import PodSpec
from placement.pods.state.node_info import NodeInfo
from placement.pods.store import statements
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.storage.database import Database

# Volumes that any node can give any pod.
_LOCAL_VOLUMES = frozenset(
    {"name", "configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
)
# The scheduler waits for the answer, and takes one node of it; it proposes no more itself in most clusters.
ENOUGH_NODES = 100

FitsWithout = Callable[[frozenset[str]], bool]
"""A check whether the pod fits when these consumers are gone."""
Refresh = Callable[[str], bool]
"""A call that updates what is known of the pods of a node, and returns whether that changed anything."""


class Victims(NamedTuple):
    """Pods to be evicted from a node, by uid, and how many disruption budgets that violates."""

    uids: Sequence[str]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class _Preemptor:
    """The pod that looks for a place."""

    document: PodDocument
    pod_spec: PodSpec
    priority: int


class Preemption:
    """The answers to a scheduler that proposes victims for preemption."""

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
        snapshot, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        pod_spec, spec = reading_of(document.manifest, snapshot.facts.settings), _mapping(pod.get("spec"))
        if spec.get("preemptionPolicy") == "Never":
            return {}
        named = spec.get("priority")
        priority = named if isinstance(named, int) and not isinstance(named, bool) else 0
        preemptor = _Preemptor(document, pod_spec, priority)
        found: dict[str, Victims] = {}
        for looked_at, (node_name, proposed_victims) in enumerate(proposed.items()):
            is_enough = found and looked_at >= ENOUGH_NODES
            if is_enough or request_scope.is_over() or request_scope.caller_is_gone():
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

    def _chosen(
        self, snapshot: ClusterSnapshot, preemptor: _Preemptor, node_name: str, proposed_victims: Victims
    ) -> Sequence[str] | None:
        """Return the uids of the victims, proposed ones spelled as they were; None if there is no way."""
        node = snapshot.by_name.get(node_name)
        if node is None:
            return None
        with self._database.read() as connection:
            present = statements.priorities(connection, node.id)
        spelled = {canonical_uid(uid): uid for uid in proposed_victims.uids}
        candidates = [one for one in present if one.priority < preemptor.priority]
        lower = {one.uid: one.consumer for one in candidates}
        if any(one.uid in spelled and one.uid not in lower for one in present):
            return None
        unknown = [uid for uid in spelled if uid not in lower]
        mine = [lower[uid] for uid in spelled if uid in lower]

        def fits(going: frozenset[str]) -> bool:
            after = columns.updated([columns.by_name[node_name].without(going)])
            ranking = self._choice.ranking(preemptor.pod_spec, preemptor.document, snapshot, after)
            return not ranking.refusals(after.among([node_name]))

        columns = self._pods.nodes_without(snapshot, preemptor.document)
        spares = None if unknown else self._spares(snapshot, preemptor, node, mine, list(spelled))
        victims = choose_victims(list(lower.values()), mine, fits, spares)
        if victims is None:
            return None
        uids = [one.uid for one in candidates if one.consumer in victims]
        return [spelled.get(uid, uid) for uid in (*unknown, *uids)]

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
