"""A pod as queries for allocation candidates, from the best to what is still acceptable.

Source: koordinator.md, "Queries".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS, host_class, numa_class
from placement.engine.numa.host import FACE_VALUE, BindPolicy, ExclusiveLevel, NumaExclusivity, NumaPolicy
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.koordinator.node import BIND_TRAITS, NUMA_POLICY_TRAITS, NUMA_TRAITS, label_trait
from placement.pods.koordinator.settings import node_labels
from placement.pods.model import NO_REQUEST, HostBindPolicy, PodRequest, PodSpec
from placement.pods.reading import PodDocument, import_pod
from placement.providers.statements import names
from placement.providers.statements.clusters import Cluster, found
from placement.storage.database import Database

# Queries for allocation candidates as parts, and as the strings they are sent as.


ISOLATE = "isolate"


class QueryGroup(NamedTuple):
    """A suffixed group: what it asks for of one provider."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FallbackQuery:
    """One of the queries for a pod: what it stands for, and its parts."""

    meaning: str
    resources: tuple[tuple[str, int], ...]
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    aggregate: str
    groups: tuple[QueryGroup, ...] = ()
    subtrees: tuple[tuple[str, ...], ...] = ()
    group_policy: str = ISOLATE

    @property
    def classes(self) -> set[str]:
        """Return every resource class that is asked for."""
        return {
            name for part in (self.resources, *(each.resources for each in self.groups)) for name, _ in part
        }

    @property
    def traits(self) -> set[str]:
        """Return every trait that a provider must have."""
        return {*self.required, *(trait for group in self.groups for trait in group.traits)}

    def query(self, known_traits: Collection[str]) -> str:
        """Return the query string; forbidden traits that do not exist are left out."""
        root = [*self.required, *(f"!{trait}" for trait in self.forbidden if trait in known_traits)]

        def amounts(resources: Sequence[tuple[str, int]]) -> str:
            return ",".join(f"{name}:{amount}" for name, amount in resources)

        pairs = [("resources", amounts(self.resources)), ("member_of", self.aggregate)]
        if root:
            pairs.append(("root_required", ",".join(root)))
        for group in self.groups:
            pairs.append((f"resources{group.suffix}", amounts(group.resources)))
            if group.traits:
                pairs.append((f"required{group.suffix}", ",".join(group.traits)))
        pairs.extend(("same_subtree", ",".join(subtree)) for subtree in self.subtrees)
        if len(self.groups) > 1:
            pairs.append(("group_policy", self.group_policy))
        return "&".join(f"{key}={quote(value, safe=':,!_-')}" for key, value in pairs)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The shape of the hosts of a cluster, as far as queries depend on it.

    `aggregate` has all hosts; `most_cpus` are the logical CPUs of the largest host for each number of threads
    per core that occurs. `policies` are the effective NUMA policies, `untold` the policies of hosts without a
    trait for theirs, `numa_nodes` the most NUMA nodes of a host. `on_numa` are resources that NUMA nodes
    offer; `below` are resources that only they do.
    """

    aggregate: str
    most_cpus: Mapping[int, int]
    policies: tuple[NumaPolicy, ...]
    untold: frozenset[NumaPolicy]
    numa_nodes: int
    on_numa: frozenset[str]
    below: frozenset[str]


def fallback_queries(
    request: PodRequest, shape: ClusterShape, labels: tuple[str, ...]
) -> list[FallbackQuery]:
    """Return the queries for a pod, best first; `labels` are traits that its node must have.

    There are queries for each number of threads per core and each NUMA policy among the hosts; none where the
    pod gets more CPUs of its own than any such host has, for queries grow with them.
    """
    if request is NO_REQUEST:
        return [FallbackQuery("any host", (("CUSTOM_PODS", 1),), labels, (), shape.aggregate)]
    large_enough: Collection[int] = (0,)
    if request.bound and request.need:
        large_enough = [threads for threads, most in shape.most_cpus.items() if request.need <= most]
    # The pod's own NUMA policy beats hosts that have none.
    policies = [request.numa.policy]
    if request.numa.policy is NumaPolicy.NONE:
        policies = sorted(shape.policies, key=list(NumaPolicy).index)
    return [
        query
        for policy in policies
        for threads in large_enough
        for query in _queries(request, shape, policy, threads, labels)
    ]


def _queries(
    request: PodRequest, shape: ClusterShape, policy: NumaPolicy, threads: int, labels: tuple[str, ...]
) -> Iterator[FallbackQuery]:
    """Yield the queries for hosts with this NUMA policy, or none, and that many threads per core."""
    resources = [
        (host_class(name).name, -(-amount // host_class(name).unit))
        for name, amount in request.amounts.items()
        if name not in shape.below
    ]
    required = [f"CUSTOM_SMT_{threads}"] if len(shape.most_cpus) > 1 and threads else []
    forbidden = []
    if request.required_bind is BindPolicy.FULL_PCPUS:
        forbidden.append(BIND_TRAITS[HostBindPolicy.SPREAD_BY_PCPUS])
    elif request.required_bind is BindPolicy.SPREAD_BY_PCPUS:
        forbidden.append(BIND_TRAITS[HostBindPolicy.FULL_PCPUS_ONLY])
    # A policy of the pod's own beats hosts that have none.
    suitable = {policy, *({NumaPolicy.NONE} if request.numa.policy is policy else ())}
    if policy is NumaPolicy.NONE or suitable & shape.untold:
        forbidden.extend(trait for other, trait in NUMA_POLICY_TRAITS.items() if other is not policy)
    else:
        required.append(NUMA_POLICY_TRAITS[policy])
    # Over how many NUMA nodes the pod may be split, best first; 0 for no alignment.
    spans = [] if policy is NumaPolicy.NONE else [1]
    if policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
        spans.extend(range(2, shape.numa_nodes + 1))
    if policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT):
        spans.append(0)
    for numa_nodes in spans:
        places = {0: "anywhere on a host", 1: "on one NUMA node"}
        where = places.get(numa_nodes, f"evenly on {numa_nodes} NUMA nodes")
        for ways in _ways(request, threads, max(1, numa_nodes)):
            groups, subtrees = _groups(request, shape, ways, is_aligned=numa_nodes > 0)
            cores = f", {threads} threads per core" if threads and ways[0].counts else ""
            yield FallbackQuery(
                meaning=f"{ways[0].meaning}{cores}, {where}",
                resources=(*resources, ("CUSTOM_PODS", 1)),
                required=(*required, *labels),
                forbidden=tuple(forbidden),
                aggregate=shape.aggregate,
                groups=groups,
                subtrees=subtrees,
                group_policy=ways[0].group_policy,
            )


class _CoreThreads(NamedTuple):
    """One way to take CPUs: threads by core, and whether each of them is another core."""

    meaning: str
    counts: tuple[int, ...]
    group_policy: str = ISOLATE


def _ways(request: PodRequest, threads: int, parts: int) -> Iterator[list[_CoreThreads]]:
    """Yield the ways to take the CPUs on each of so many NUMA nodes, best first."""
    if not (request.bound and request.need):
        yield [_CoreThreads("CPUs of a pool", ())] * parts
        return
    full = (request.required_bind or request.preferred_bind) is BindPolicy.FULL_PCPUS
    strict, need = bool(request.required_bind), request.need
    if full and not (strict and need % threads):
        grain = threads if strict or need % (threads * parts) == 0 else 1
        dealt = [divmod(share, threads) for share in _even(need, parts, grain)]
        yield [
            _CoreThreads("whole cores", (threads,) * cores + ((rest,) if rest else ()))
            for cores, rest in dealt
        ]
    if full and strict:
        return
    alone = "a thread each of different cores"
    spread = [_CoreThreads(alone, (1,) * share) for share in _even(need, parts, 1)]
    if not full:
        yield spread
    if not strict:
        yield [each._replace(meaning="any free threads", group_policy="none") for each in spread]


def _even(need: int, parts: int, grain: int) -> list[int]:
    """Deal CPUs over so many NUMA nodes, in multiples of `grain` as far as possible."""
    units, rest = divmod(need, grain)
    shares = [grain * (units // parts + (1 if part < units % parts else 0)) for part in range(parts)]
    shares[0] += rest
    return shares


def _groups(
    request: PodRequest, shape: ClusterShape, ways: Sequence[_CoreThreads], *, is_aligned: bool
) -> tuple[tuple[QueryGroup, ...], tuple[tuple[str, ...], ...]]:
    """Return the groups, cores in these ways and NUMA nodes if aligned, and which lie in one subtree."""

    def numa_amounts(offered: Collection[str], part: int, parts: int) -> dict[str, int]:
        """Return what one of `parts` NUMA nodes gives of what they offer, rounded up to units."""
        shares = {
            name: amount // parts + (1 if part < amount % parts else 0)
            for name, amount in request.amounts.items()
            if name in offered
        }
        kinds = {name: numa_class(name) for name in shares}
        return {kinds[name].name: -(-share // kinds[name].unit) for name, share in shares.items() if share}

    groups: list[QueryGroup] = []
    subtrees = []
    for part, way in enumerate(ways):
        tag = f"{part}_" if len(ways) > 1 else ""
        cores = [
            QueryGroup(f"_c{tag}{number}", ((CORE_CLASS, count),)) for number, count in enumerate(way.counts)
        ]
        if is_aligned:
            suffix = f"_numa{part}" if len(ways) > 1 else "_numa"
            shares = numa_amounts(shape.on_numa, part, len(ways))
            if way.counts:
                shares[CPU_CLASS] = 1000 * sum(way.counts)
            groups.append(QueryGroup(suffix, tuple(shares.items()), tuple(NUMA_TRAITS)))
            if cores:
                subtrees.append((suffix, *(core.suffix for core in cores)))
        groups.extend(cores)
    if not is_aligned:
        only_below = numa_amounts(shape.below, 0, 1).items()
        groups.extend(QueryGroup(f"_r{number}", (amount,)) for number, amount in enumerate(only_below))
    return tuple(groups), tuple(subtrees)


# What queries for allocation candidates cannot say about a pod, in plain words.
#
# Source: koordinator.md, "What granular syntax cannot say".


_MANY_GROUPS = 8


def gaps_of(
    incoming: PodSpec, label_keys: Collection[str], *, amplified: bool, bound_by_hosts: bool
) -> Iterator[str]:
    """Yield everything about a pod that its queries leave out, one sentence each.

    `label_keys` are labels that are traits; `amplified`: some hosts advertise more CPUs than they have;
    `bound_by_hosts`: some hosts bind every pod that requests CPUs.
    """
    selection, request = incoming.selection, incoming.request
    left_out = sorted(key for key, _ in selection.selector if key not in label_keys)
    if left_out:
        keys = ", ".join(left_out)
        yield f"nodeSelector: {keys} are no traits; name them in the cluster's setting nodeLabels"
    if selection.terms is not None:
        yield "required node affinity: expressions about labels have no form as traits"
    yield "taints and unschedulable nodes: queries find hosts that the pod may not go to"
    if incoming.rules.say_anything:
        yield "pod affinity and topology spread: queries know nothing of the pods that are placed"
    if request.bound and request.need:
        yield "which threads of a core: PCPU counts threads, logical CPUs are chosen when the pod is placed"
        yield "which cores are best: the order of candidates knows no sockets, broken cores or strategies"
        if not request.required_bind:
            yield "preference: ask the queries in turn, each stands for what is acceptable next"
        if request.need > _MANY_GROUPS:
            yield "size: cores that are alike can be combined in very many ways; ask with a small limit"
        if request.required_bind is BindPolicy.FULL_PCPUS:
            yield "whole cores: hosts whose threads per core do not divide the request are left out"
    if amplified and request.bound:
        yield "amplification: a bound CPU costs the ratio of its host, queries ask for the plain amount"
    if bound_by_hosts and not request.bound and request.milli_cpus:
        yield "host bind policies: some hosts give every pod CPUs of its own, queries do not ask for them"
    if request.exclusive is not ExclusiveLevel.NONE:
        yield f"exclusivity: {request.exclusive} depends on the levels of the neighbours"
    if request.burst_limit is not None:
        yield "ConstrainedBurst: the size of the shared pools is in no inventory"
    if request.numa.policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
        yield "split: queries split evenly over NUMA nodes, placing fills the poorest first"
    if request.numa.effective_exclusivity is not NumaExclusivity.NONE:
        yield "NUMA exclusivity: whether pods of one and of several NUMA nodes meet is in no inventory"


# Pods as queries for allocation candidates, fitted to the hosts of a cluster.


@dataclass(frozen=True, slots=True)
class PodQueries:
    """The queries of a pod, best first, as (meaning, query string); what they leave out; warnings."""

    queries: list[tuple[str, str]]
    gaps: list[str]
    warnings: tuple[str, ...]


class PodTranslation:
    """A translator of pods to queries; nothing is searched or claimed."""

    def __init__(self, database: Database, cluster_cache: ClusterCache) -> None:
        self._database = database
        self._cluster_cache = cluster_cache

    def translate(self, cluster: str, pod: Mapping[str, Any]) -> PodQueries:
        """Return the queries for a pod on the hosts of a cluster. Raises NotFound, ManifestError."""
        view = self._cluster_cache.snapshot(cluster)
        incoming = import_pod(PodDocument.unnamed(cluster, pod).manifest, view.facts.settings)
        with self._database.read() as connection:
            stored = found(connection, cluster)
            keys = node_labels(stored.settings)
            selector = [(key, value) for key, value in incoming.selection.selector if key in keys]
            traits = (label_trait(key, value) for key, value in selector)
            shape = _shape(stored, view, incoming)
            fallbacks = fallback_queries(incoming.request, shape, tuple(filter(None, traits)))
            classes = {name for fallback in fallbacks for name in fallback.classes}
            known_classes = names.class_ids(connection, classes)
            asked = {trait for fallback in fallbacks for trait in (*fallback.traits, *fallback.forbidden)}
            known_traits = names.trait_ids(connection, asked)
        usable = [
            fallback
            for fallback in fallbacks
            if fallback.classes <= known_classes.keys() and fallback.traits <= known_traits.keys()
        ]
        queries = {fallback.query(known_traits): fallback.meaning for fallback in reversed(usable)}
        states = view.nodes.values()
        bind_policies = {state.template.imported.policies.bind for state in states}
        is_bound = bool(bind_policies - {HostBindPolicy.NONE}) and not view.facts.settings.follows_design
        amplified = any(state.offers.ratio > FACE_VALUE for state in states)
        gaps = list(gaps_of(incoming, keys, amplified=amplified, bound_by_hosts=is_bound))
        if not usable:
            gaps.insert(0, _nowhere(incoming.request, shape, fallbacks, known_classes, known_traits))
        ordered = [(meaning, query) for query, meaning in reversed(queries.items())]
        return PodQueries(ordered, gaps, incoming.warnings)


def _shape(cluster: Cluster, view: ClusterSnapshot, incoming: PodSpec) -> ClusterShape:
    kinds = {state.template: state for state in view.nodes.values()}
    most_cpus: dict[int, int] = {}
    for kind in kinds:
        threads, cpus = kind.imported.topology.threads_per_core, len(kind.imported.topology.by_cpu)
        if threads:
            most_cpus[threads] = max(cpus, most_cpus.get(threads, 0))
    asked = [(kind.offers, name) for kind in kinds for name in incoming.request.amounts]
    offered = {name for offers, name in asked if offers.on_numa_nodes(name)}
    on_hosts = {name for offers, name in asked if offers.host(name) is not None}
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
    request: PodRequest,
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
    if request.bound and request.need > most > 0:
        return (
            f"there is no query: {request.need} CPUs of its own are more than the {most} of the largest host"
        )
    return "there is no query: no host has CPUs that the pod could be given"
