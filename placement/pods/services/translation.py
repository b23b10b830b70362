"""A pod as queries for allocation candidates, fitted to the hosts of a cluster, and their gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from placement.allocations.kubernetes_resources import host_class, numa_class
from placement.engine.numa.host import FACE_VALUE, BindPolicy, ExclusiveLevel, NumaExclusivity, NumaPolicy
from placement.pods.decide.reading import PodDocument, import_pod
from placement.pods.koordinator.node import label_trait
from placement.pods.koordinator.settings import node_labels
from placement.pods.services.fallback_queries import ClusterShape, FallbackQuery, fallback_queries
from placement.pods.state.model import HostBindPolicy, PodRequest, PodSpec
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.providers.statements import names
from placement.providers.statements.clusters import Cluster, found
from placement.storage.database import Database, Executor


@dataclass(frozen=True, slots=True)
class PodQueries:
    """The queries of a pod, best first, as (meaning, query string); what they leave out; warnings."""

    queries: list[tuple[str, str]]
    gaps: list[str]
    warnings: tuple[str, ...]


class PodTranslation:
    """The translation of pods to queries; nothing is searched or claimed."""

    for_bound_callers = True

    def __init__(self, database: Database, cluster_cache: ClusterCache) -> None:
        self._database = database
        self._cluster_cache = cluster_cache

    def translate(self, cluster: str, pod: Mapping[str, Any]) -> PodQueries:
        """Return the queries for a pod on the hosts of a cluster. Raises NotFound, ManifestError."""
        snapshot = self._cluster_cache.snapshot(cluster)
        settings = snapshot.facts.settings
        pod_spec = import_pod(PodDocument.unnamed(cluster, pod).manifest, settings)
        with self._database.read() as connection:
            stored = found(connection, cluster)
            keys = node_labels(stored.settings)
            selector = [(key, value) for key, value in pod_spec.selection.selector if key in keys]
            traits = (label_trait(key, value) for key, value in selector)
            shape = _shape(stored, snapshot, pod_spec)
            fallbacks = fallback_queries(pod_spec.request, shape, tuple(filter(None, traits)))
            known = _KnownNames.of(connection, fallbacks)
        usable = [fallback for fallback in fallbacks if known.has_all_of(fallback)]
        queries = {fallback.query(known.traits): fallback.meaning for fallback in reversed(usable)}
        nodes = snapshot.nodes.values()
        bind_policies = {node.template.node_import.policies.bind for node in nodes}
        is_bound = bool(bind_policies - {HostBindPolicy.NONE}) and not settings.follows_design
        amplified = any(node.offers.ratio > FACE_VALUE for node in nodes)
        gaps = list(gaps_of(pod_spec, keys, amplified=amplified, bound_by_hosts=is_bound))
        if not usable:
            gaps.insert(0, _nowhere(pod_spec.request, shape, fallbacks, known))
        ordered = [(meaning, query) for query, meaning in reversed(queries.items())]
        return PodQueries(ordered, gaps, pod_spec.warnings)


class _KnownNames(NamedTuple):
    """The resource classes and traits of queries that exist, with their ids."""

    classes: Mapping[str, int]
    traits: Mapping[str, int]

    @classmethod
    def of(cls, connection: Executor, fallbacks: Iterable[FallbackQuery]) -> _KnownNames:
        """Return the known ones among all that these queries name."""
        classes, traits = set[str](), set[str]()
        for fallback in fallbacks:
            classes |= fallback.classes
            traits.update(fallback.traits, fallback.forbidden)
        return cls(names.class_ids(connection, classes), names.trait_ids(connection, traits))

    def has_all_of(self, fallback: FallbackQuery) -> bool:
        """Return whether everything that a query asks for exists."""
        return fallback.classes <= self.classes.keys() and fallback.traits <= self.traits.keys()


def _shape(cluster: Cluster, snapshot: ClusterSnapshot, pod: PodSpec) -> ClusterShape:
    kinds = {node.template: node for node in snapshot.nodes.values()}
    most_cpus: dict[int, int] = {}
    for kind in kinds:
        threads, cpus = kind.node_import.topology.threads_per_core, len(kind.node_import.topology.by_cpu)
        if threads:
            most_cpus[threads] = max(cpus, most_cpus.get(threads, 0))
    asked = [(kind.offers, name) for kind in kinds for name in pod.request.amounts]
    offered = {name for offers, name in asked if offers.on_numa_nodes(name)}
    on_hosts = {name for offers, name in asked if offers.host(name) is not None}
    below = {name for name in offered - on_hosts if host_class(name) == numa_class(name)}
    return ClusterShape(
        aggregate=cluster.aggregate_uuid,
        most_cpus=dict(sorted(most_cpus.items())),
        numa_policies=tuple({node.host.numa_policy for node in kinds.values()}) or (NumaPolicy.NONE,),
        untold_policies=frozenset(
            node.host.numa_policy
            for kind, node in kinds.items()
            if kind.node_import.policies.numa in (None, NumaPolicy.NONE)
        ),
        numa_nodes=max((len(kind.offers.numa_ids) for kind in kinds), default=1),
        on_numa=frozenset(offered),
        below=frozenset(below),
    )


def _nowhere(
    request: PodRequest,
    shape: ClusterShape,
    fallbacks: list[FallbackQuery],
    known: _KnownNames,
) -> str:
    """Return in plain words why a pod has no query."""
    missing = {
        name
        for fallback in fallbacks
        for name in (fallback.classes - known.classes.keys()) | (fallback.traits - known.traits.keys())
    }
    if missing:
        return f"there is no query: no provider has {', '.join(sorted(missing))}"
    most = max(shape.most_cpus.values(), default=0)
    if request.bound and request.need > most > 0:
        return (
            f"there is no query: {request.need} CPUs of its own are more than the {most} of the largest host"
        )
    return "there is no query: no host has CPUs that the pod could be given"


_MANY_GROUPS = 8


def gaps_of(
    pod: PodSpec, label_keys: Collection[str], *, amplified: bool, bound_by_hosts: bool
) -> Iterator[str]:
    """Yield everything about a pod that its queries leave out, one sentence each.

    `label_keys` are labels that are traits; `amplified`: some hosts advertise more CPUs than they have;
    `bound_by_hosts`: some hosts bind every pod that requests CPUs. Source: koordinator.md, "What granular
    syntax cannot say".
    """
    yield from _gaps_of_selection(pod, label_keys)
    request = pod.request
    if request.bound and request.need:
        yield from _gaps_of_cores(request)
    if amplified and request.bound:
        yield "amplification: a bound CPU costs the ratio of its host, queries ask for the plain amount"
    if bound_by_hosts and not request.bound and request.milli_cpus:
        yield "host bind policies: some hosts give every pod CPUs of its own, queries do not ask for them"
    if request.exclusive is not ExclusiveLevel.NONE:
        yield f"exclusivity: {request.exclusive} depends on the levels of the neighbours"
    if request.burst_limit is not None:
        yield "ConstrainedBurst: inventories do not have the size of shared pools"
    if request.numa.policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
        yield "split: queries split evenly over NUMA nodes, placing fills the poorest first"
    if request.numa.effective_exclusivity is not NumaExclusivity.NONE:
        yield "NUMA exclusivity: inventories do not show whether pods of one and of several NUMA nodes meet"


def _gaps_of_selection(pod: PodSpec, label_keys: Collection[str]) -> Iterator[str]:
    left_out = sorted(key for key, _ in pod.selection.selector if key not in label_keys)
    if left_out:
        keys = ", ".join(left_out)
        yield f"nodeSelector: {keys} are not traits; name them in the cluster's setting nodeLabels"
    if pod.selection.terms is not None:
        yield "required node affinity: expressions about labels cannot be written as traits"
    yield "taints and unschedulable nodes: queries find hosts that the pod may not go to"
    if pod.rules.say_anything:
        yield "pod affinity and topology spread: queries ignore pods that are placed"


def _gaps_of_cores(request: PodRequest) -> Iterator[str]:
    yield "which threads of a core: PCPU counts threads, logical CPUs are chosen when the pod is placed"
    yield "which cores are best: the order of candidates ignores sockets, broken cores and strategies"
    if not request.required_bind:
        yield "preference: ask the queries in turn, each is the next best choice"
    if request.need > _MANY_GROUPS:
        yield "size: cores that are alike can be combined in very many ways; ask with a small limit"
    if request.required_bind is BindPolicy.FULL_PCPUS:
        yield "whole cores: hosts whose threads per core do not divide the request are left out"
