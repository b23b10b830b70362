"""A pod as queries for allocation candidates, from the best to what is still acceptable.

Source: koordinator.md, "Queries".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS, host_class, numa_class
from placement.engine.numa.amounts import Amounts
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel, NumaExclusivity, NumaPolicy
from placement.engine.numa.host import FACE_VALUE
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.documents import PodDocument
from placement.pods.koordinator.pod import import_pod
from placement.pods.koordinator.settings import node_labels
from placement.pods.koordinator.tree import BIND_TRAITS, NUMA_POLICY_TRAITS, NUMA_TRAITS, label_trait
from placement.pods.manifests.affinity import PodRules
from placement.pods.manifests.selection import NodeSelection
from placement.pods.model import HostBindPolicy, PodRequest, PodSpec
from placement.providers.statements import names
from placement.providers.statements.clusters import Cluster, found
from placement.storage.database import Database

# Queries for allocation candidates as parts, and as the strings they are sent as.


ISOLATE = "isolate"


@dataclass(frozen=True, slots=True)
class QueryGroup:
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
        pairs = [("resources", _amounts(self.resources)), ("member_of", self.aggregate)]
        if root:
            pairs.append(("root_required", ",".join(root)))
        for group in self.groups:
            pairs.append((f"resources{group.suffix}", _amounts(group.resources)))
            if group.traits:
                pairs.append((f"required{group.suffix}", ",".join(group.traits)))
        pairs.extend(("same_subtree", ",".join(subtree)) for subtree in self.subtrees)
        if len(self.groups) > 1:
            pairs.append(("group_policy", self.group_policy))
        return "&".join(f"{key}={quote(value, safe=':,!_-')}" for key, value in pairs)


def _amounts(resources: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in resources)


_NUMA = "_numa"


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
    request: PodRequest | None, shape: ClusterShape, labels: Sequence[str] = ()
) -> list[FallbackQuery]:
    """Return the queries for a pod, best first; `labels` are traits that its node must have.

    There are queries for each number of threads per core and each NUMA policy among the hosts; none where the
    pod gets more CPUs of its own than any such host has, for queries grow with them.
    """
    if request is None:
        return [FallbackQuery("any host", (("CUSTOM_PODS", 1),), tuple(labels), (), shape.aggregate)]
    large_enough: Collection[int] = (0,)
    if request.bound and request.need:
        large_enough = [threads for threads, most in shape.most_cpus.items() if request.need <= most]
    found: list[FallbackQuery] = []
    for policy in _policies(request, shape):
        for threads in large_enough:
            found.extend(_Fallbacks(request, shape, policy, threads, tuple(labels)).queries())
    return found


def _policies(request: PodRequest, shape: ClusterShape) -> list[NumaPolicy]:
    """Return the NUMA policies under which the pod may end up: its own one beats hosts that have none."""
    own = request.numa.policy
    if own is not NumaPolicy.NONE:
        return [own]
    return sorted(shape.policies, key=list(NumaPolicy).index) or [NumaPolicy.NONE]


@dataclass(frozen=True, slots=True)
class _CoreThreads:
    """One way to take CPUs: threads by core, and whether each of them is another core."""

    meaning: str
    counts: tuple[int, ...]
    group_policy: str = ISOLATE


@dataclass(frozen=True, slots=True)
class _Fallbacks:
    request: PodRequest
    shape: ClusterShape
    policy: NumaPolicy
    threads: int
    labels: tuple[str, ...]

    def queries(self) -> Iterator[FallbackQuery]:
        base = self._base()
        for numa_nodes in self._spans():
            for ways in self._ways(max(1, numa_nodes)):
                yield self._fallback(base, numa_nodes, ways)

    def _base(self) -> FallbackQuery:
        amounts = self.request.amounts
        resources = [
            (host_class(name).name, -(-amount // host_class(name).unit))
            for name, amount in amounts.items()
            if name not in self.shape.below
        ]
        required = [
            *([f"CUSTOM_SMT_{self.threads}"] if len(self.shape.most_cpus) > 1 and self.threads else [])
        ]
        forbidden = list(self._forbidden_binding())
        # A policy of the pod's own beats hosts that have none.
        suitable = {self.policy, *({NumaPolicy.NONE} if self.request.numa.policy is self.policy else ())}
        policies = NUMA_POLICY_TRAITS
        if self.policy is NumaPolicy.NONE or suitable & self.shape.untold:
            forbidden.extend(trait for policy, trait in policies.items() if policy is not self.policy)
        else:
            required.append(policies[self.policy])
        return FallbackQuery(
            meaning="",
            resources=(*resources, ("CUSTOM_PODS", 1)),
            required=(*required, *self.labels),
            forbidden=tuple(forbidden),
            aggregate=self.shape.aggregate,
        )

    def _forbidden_binding(self) -> Iterator[str]:
        if self.request.required_bind is BindPolicy.FULL_PCPUS:
            yield BIND_TRAITS[HostBindPolicy.SPREAD_BY_PCPUS]
        elif self.request.required_bind is BindPolicy.SPREAD_BY_PCPUS:
            yield BIND_TRAITS[HostBindPolicy.FULL_PCPUS_ONLY]

    def _spans(self) -> Iterator[int]:
        """Yield over how many NUMA nodes the pod may be split, best first; 0 for no alignment."""
        if self.policy is not NumaPolicy.NONE:
            yield 1
        if self.policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
            yield from range(2, self.shape.numa_nodes + 1)
        if self.policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT):
            yield 0

    def _ways(self, parts: int) -> Iterator[list[_CoreThreads]]:
        """Yield the ways to take the CPUs on each of so many NUMA nodes, best first."""
        if not (self.request.bound and self.request.need):
            yield [_CoreThreads("CPUs of a pool", ())] * parts
            return
        full = (self.request.required_bind or self.request.preferred_bind) is BindPolicy.FULL_PCPUS
        strict = bool(self.request.required_bind)
        threads, need = self.threads, self.request.need
        if full and not (strict and need % threads):
            grain = threads if strict or need % (threads * parts) == 0 else 1
            shares = _even(need, parts, grain)
            yield [_CoreThreads("whole cores", _whole(share, threads)) for share in shares]
        if full and strict:
            return
        spread = [
            _CoreThreads("a thread each of different cores", (1,) * share) for share in _even(need, parts, 1)
        ]
        if not full:
            yield spread
        if not strict:
            yield [replace(each, meaning="any free threads", group_policy="none") for each in spread]

    def _fallback(self, base: FallbackQuery, numa_nodes: int, ways: Sequence[_CoreThreads]) -> FallbackQuery:
        groups: list[QueryGroup] = []
        subtrees = []
        for part, way in enumerate(ways):
            tag = f"{part}_" if len(ways) > 1 else ""
            cores = [
                QueryGroup(f"_c{tag}{number}", ((CORE_CLASS, count),))
                for number, count in enumerate(way.counts)
            ]
            if numa_nodes:
                suffix = f"{_NUMA}{part}" if len(ways) > 1 else _NUMA
                groups.append(QueryGroup(suffix, self._numa_share(way, part, len(ways)), tuple(NUMA_TRAITS)))
                if cores:
                    subtrees.append((suffix, *(core.suffix for core in cores)))
            groups.extend(cores)
        if not numa_nodes:
            groups.extend(
                QueryGroup(f"_r{number}", (amount,))
                for number, amount in enumerate(self._numa_amounts(self.shape.below, 0, 1))
            )
        return replace(
            base,
            meaning=self._meaning(numa_nodes, ways[0]),
            groups=tuple(groups),
            subtrees=tuple(subtrees),
            group_policy=ways[0].group_policy,
        )

    def _numa_share(self, way: _CoreThreads, part: int, parts: int) -> tuple[tuple[str, int], ...]:
        shares = dict(self._numa_amounts(self.shape.on_numa, part, parts))
        if way.counts:
            shares[CPU_CLASS] = 1000 * sum(way.counts)
        return tuple(shares.items())

    def _numa_amounts(self, offered: Collection[str], part: int, parts: int) -> Iterator[tuple[str, int]]:
        """Yield what one of `parts` NUMA nodes gives of what they offer, rounded up to units."""
        for name, share in _parts_of(self.request.amounts, part, parts):
            if name in offered and share:
                kind = numa_class(name)
                yield kind.name, -(-share // kind.unit)

    def _meaning(self, numa_nodes: int, way: _CoreThreads) -> str:
        where = {0: "anywhere on a host", 1: "on one NUMA node"}.get(
            numa_nodes, f"evenly on {numa_nodes} NUMA nodes"
        )
        cores = f", {self.threads} threads per core" if self.threads and way.counts else ""
        return f"{way.meaning}{cores}, {where}"


def _parts_of(amounts: Amounts, part: int, parts: int) -> Iterator[tuple[str, int]]:
    for name, amount in amounts.items():
        yield name, amount // parts + (1 if part < amount % parts else 0)


def _even(need: int, parts: int, grain: int) -> list[int]:
    """Deal CPUs over so many NUMA nodes, in multiples of `grain` as far as possible."""
    units, rest = divmod(need, grain)
    shares = [grain * (units // parts + (1 if part < units % parts else 0)) for part in range(parts)]
    shares[0] += rest
    return shares


def _whole(share: int, threads: int) -> tuple[int, ...]:
    return (threads,) * (share // threads) + ((share % threads,) if share % threads else ())


# What queries for allocation candidates cannot say about a pod, in plain words.
#
# Source: koordinator.md, "What granular syntax cannot say".


_MANY_GROUPS = 8


def gaps_of(
    request: PodRequest | None,
    selection: NodeSelection,
    rules: PodRules,
    label_keys: Collection[str],
    *,
    amplified: bool,
    bound_by_hosts: bool,
) -> list[str]:
    """Return everything about a pod that its queries leave out, one sentence each.

    `label_keys` are labels that are traits; `amplified`: some hosts advertise more CPUs than they have;
    `bound_by_hosts`: some hosts bind every pod that requests CPUs.
    """
    found = list(_about_nodes(selection, label_keys))
    if rules:
        found.append("pod affinity and topology spread: queries know nothing of the pods that are placed")
    if request is not None:
        found.extend(_about_cpus(request, amplified, bound_by_hosts))
        found.extend(_about_numa_nodes(request))
    return found


def _about_nodes(selection: NodeSelection, label_keys: Collection[str]) -> Iterator[str]:
    left_out = sorted(key for key, _ in selection.selector if key not in label_keys)
    if left_out:
        keys = ", ".join(left_out)
        yield f"nodeSelector: {keys} are no traits; name them in the cluster's setting nodeLabels"
    if selection.terms is not None:
        yield "required node affinity: expressions about labels have no form as traits"
    yield "taints and unschedulable nodes: queries find hosts that the pod may not go to"


def _about_cpus(request: PodRequest, amplified: bool, bound_by_hosts: bool) -> Iterator[str]:
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


def _about_numa_nodes(request: PodRequest) -> Iterator[str]:
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


def _shape(cluster: Cluster, view: ClusterSnapshot, incoming: PodSpec) -> ClusterShape:
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
