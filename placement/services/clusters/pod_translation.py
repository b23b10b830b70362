"""Pods as queries for allocation candidates, fitted to the hosts of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.node.host_policies import HostBindPolicy
from placement.dialects.koordinator.node.traits import label_trait
from placement.dialects.koordinator.pod.fallback_queries import FallbackQuery
from placement.dialects.koordinator.pod.pod_request import PodImport, PodRequest, import_pod
from placement.dialects.koordinator.pod.translation import ClusterShape, fallback_queries
from placement.dialects.koordinator.pod.translation_gaps import gaps_of
from placement.dialects.koordinator.resources import host_class, numa_class
from placement.dialects.koordinator.settings.settings import node_labels
from placement.numa.demand import NumaPolicy
from placement.numa.host import FACE_VALUE
from placement.services.clusters.cluster_lookup import found
from placement.services.clusters.pod_documents import PodDocument
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.storage.database import Database
from placement.storage.statements import names
from placement.storage.statements.clusters import Cluster


@dataclass(frozen=True, slots=True)
class PodQueries:
    """The queries of a pod, best first, as (meaning, query string); what they leave out; warnings."""

    queries: list[tuple[str, str]]
    gaps: list[str]
    warnings: tuple[str, ...]


class PodTranslation:
    """Translates pods; nothing is searched or claimed."""

    def __init__(self, database: Database, cluster_cache: ClusterCache) -> None:
        self._database = database
        self._cluster_cache = cluster_cache

    def translate(self, cluster: str, pod: Mapping[str, Any]) -> PodQueries:
        """The queries for a pod on the hosts of a cluster. Raises NotFound, ManifestError."""
        view = self._cluster_cache.view(cluster)
        incoming = import_pod(PodDocument.unnamed(cluster, pod).manifest, view.facts.settings)
        with self._database.read() as connection:
            stored = found(connection, cluster)
            keys = node_labels(stored.settings)
            selector = [(key, value) for key, value in incoming.selection.selector if key in keys]
            traits = [trait for key, value in selector if (trait := label_trait(key, value)) is not None]
            shape = _shape(stored, view, incoming)
            fallbacks = fallback_queries(incoming.request, shape, traits)
            known_classes = names.class_ids(
                connection, {name for fallback in fallbacks for name in fallback.classes}
            )
            asked = {trait for fallback in fallbacks for trait in (*fallback.traits, *fallback.forbidden)}
            known_traits = names.trait_ids(connection, asked)
        usable = [
            fallback
            for fallback in fallbacks
            if fallback.classes <= known_classes.keys() and fallback.traits <= known_traits.keys()
        ]
        queries = {fallback.query(known_traits): fallback.meaning for fallback in reversed(usable)}
        gaps = gaps_of(
            incoming.request,
            incoming.selection,
            incoming.rules,
            keys,
            amplified=any(state.offers.ratio > FACE_VALUE for state in view.nodes.values()),
            bound_by_hosts=not view.facts.settings.follows_design
            and any(
                state.template.imported.policies.bind is not HostBindPolicy.NONE
                for state in view.nodes.values()
            ),
        )
        if not usable:
            gaps.insert(0, _nowhere(incoming.request, shape, fallbacks, known_classes, known_traits))
        ordered = [(meaning, query) for query, meaning in reversed(queries.items())]
        return PodQueries(ordered, gaps, incoming.warnings)


def _shape(cluster: Cluster, view: ClusterSnapshot, incoming: PodImport) -> ClusterShape:
    kinds = {state.template: state for state in view.nodes.values()}
    most_cpus: dict[int, int] = {}
    for kind in kinds:
        threads, cpus = kind.imported.topology.threads_per_core, len(kind.imported.topology.by_cpu)
        if threads:
            most_cpus[threads] = max(cpus, most_cpus.get(threads, 0))
    offered: set[str] = set()
    on_hosts: set[str] = set()
    for kind in kinds:
        for name in incoming.amounts:
            if kind.offers.on_numa_nodes(name):
                offered.add(name)
            if kind.offers.host(name) is not None:
                on_hosts.add(name)
    below = {name for name in offered - on_hosts if host_class(name) == numa_class(name)}
    return ClusterShape(
        aggregate=cluster.aggregate_uuid,
        most_cpus=dict(sorted(most_cpus.items())),
        policies=tuple({state.host.numa_policy for state in kinds.values()}) or (NumaPolicy.NONE,),
        untold=frozenset(
            state.host.numa_policy
            for kind, state in kinds.items()
            if kind.imported.policies.numa in (None, NumaPolicy.NONE)
        ),
        numa_nodes=max((len(kind.offers.numa_ids) for kind in kinds), default=1),
        on_numa=frozenset(offered),
        below=frozenset(below),
    )


def _nowhere(
    request: PodRequest | None,
    shape: ClusterShape,
    fallbacks: list[FallbackQuery],
    classes: Mapping[str, int],
    traits: Mapping[str, int],
) -> str:
    missing = {
        name
        for fallback in fallbacks
        for name in (fallback.classes - classes.keys()) | (fallback.traits - traits.keys())
    }
    if missing:
        return f"there is no query: no provider has {', '.join(sorted(missing))}"
    most = max(shape.most_cpus.values(), default=0)
    if request is not None and request.bound and request.need > most > 0:
        return (
            f"there is no query: {request.need} CPUs of its own are more than the {most} of the largest host"
        )
    return "there is no query: no host has CPUs that the pod could be given"
