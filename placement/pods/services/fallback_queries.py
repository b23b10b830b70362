"""A pod as queries for allocation candidates, from the best to one that is still acceptable.

Source: koordinator.md, "Queries".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS, host_class, numa_class
from placement.engine.numa.host import BindPolicy, NumaPolicy
from placement.pods.koordinator.node import BIND_TRAITS, NUMA_POLICY_TRAITS, NUMA_TRAITS
from placement.pods.state.model import NO_REQUEST, HostBindPolicy, PodRequest

ISOLATE = "isolate"


class QueryGroup(NamedTuple):
    """A suffixed group: resources and traits of one provider."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FallbackQuery:
    """One of the queries for a pod: its meaning, and its parts."""

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
    """The properties of the hosts of a cluster on which queries depend.

    `aggregate` has all hosts; `most_cpus` are the logical CPUs of the largest host for each number of threads
    per core that occurs. `numa_policies` are the effective NUMA policies, `untold_policies` the policies of
    hosts without a trait for theirs, `numa_nodes` the most NUMA nodes of a host. `on_numa` are resources that
    NUMA nodes offer; `below` are resources that only they do.
    """

    aggregate: str
    most_cpus: Mapping[int, int]
    numa_policies: tuple[NumaPolicy, ...]
    untold_policies: frozenset[NumaPolicy]
    numa_nodes: int
    on_numa: frozenset[str]
    below: frozenset[str]


def fallback_queries(
    request: PodRequest, shape: ClusterShape, labels: tuple[str, ...]
) -> list[FallbackQuery]:
    """Return the queries for a pod, best first; `labels` are traits that its node must have.

    There are queries for each number of threads per core and each NUMA policy among the hosts. There are none
    where the pod gets more CPUs of its own than any such host has, as queries grow with them.
    """
    if request is NO_REQUEST:
        return [FallbackQuery("any host", (("CUSTOM_PODS", 1),), labels, (), shape.aggregate)]
    large_enough: Collection[int] = (0,)
    if request.bound and request.need:
        large_enough = [threads for threads, most in shape.most_cpus.items() if request.need <= most]
    # The pod's own NUMA policy beats hosts that have none.
    policies = [request.numa.policy]
    if request.numa.policy is NumaPolicy.NONE:
        policies = sorted(shape.numa_policies, key=list(NumaPolicy).index)
    return [
        query
        for policy in policies
        for threads in large_enough
        for query in _queries(request, shape, policy, threads, labels)
    ]


def _queries(
    request: PodRequest, shape: ClusterShape, numa_policy: NumaPolicy, threads: int, labels: tuple[str, ...]
) -> Iterator[FallbackQuery]:
    """Yield the queries for hosts with this NUMA policy, or none, and that many threads per core."""
    resources = [
        (host_class(name).name, -(-amount // host_class(name).unit))
        for name, amount in request.amounts.items()
        if name not in shape.below
    ]
    required, forbidden = _traits(request, shape, numa_policy, threads)
    for numa_nodes in _spans(numa_policy, shape.numa_nodes):
        places = {0: "anywhere on a host", 1: "on one NUMA node"}
        where = places.get(numa_nodes, f"evenly on {numa_nodes} NUMA nodes")
        for core_threads in _ways(request, threads, max(1, numa_nodes)):
            groups, subtrees = _groups(request, shape, core_threads, is_aligned=numa_nodes > 0)
            first = core_threads[0]
            cores = f", {threads} threads per core" if threads and first.counts else ""
            yield FallbackQuery(
                meaning=f"{first.meaning}{cores}, {where}",
                resources=(*resources, ("CUSTOM_PODS", 1)),
                required=(*required, *labels),
                forbidden=tuple(forbidden),
                aggregate=shape.aggregate,
                groups=groups,
                subtrees=subtrees,
                group_policy=first.group_policy,
            )


def _traits(
    request: PodRequest, shape: ClusterShape, numa_policy: NumaPolicy, threads: int
) -> tuple[list[str], list[str]]:
    """Return the traits that hosts must have, and the ones that they must not have."""
    required = [f"CUSTOM_SMT_{threads}"] if len(shape.most_cpus) > 1 and threads else []
    forbidden = []
    if request.required_bind is BindPolicy.FULL_PCPUS:
        forbidden.append(BIND_TRAITS[HostBindPolicy.SPREAD_BY_PCPUS])
    elif request.required_bind is BindPolicy.SPREAD_BY_PCPUS:
        forbidden.append(BIND_TRAITS[HostBindPolicy.FULL_PCPUS_ONLY])
    # A policy of the pod's own beats hosts that have none.
    suitable = {numa_policy, *({NumaPolicy.NONE} if request.numa.policy is numa_policy else ())}
    if numa_policy is NumaPolicy.NONE or suitable & shape.untold_policies:
        forbidden.extend(trait for other, trait in NUMA_POLICY_TRAITS.items() if other is not numa_policy)
    else:
        required.append(NUMA_POLICY_TRAITS[numa_policy])
    return required, forbidden


def _spans(numa_policy: NumaPolicy, most: int) -> list[int]:
    """Return over how many NUMA nodes the pod may be split, best first; 0 for no alignment."""
    spans = [] if numa_policy is NumaPolicy.NONE else [1]
    if numa_policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
        spans.extend(range(2, most + 1))
    if numa_policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT):
        spans.append(0)
    return spans


class _CoreThreads(NamedTuple):
    """One way to take CPUs: threads by core, and whether each of them is another core."""

    meaning: str
    counts: tuple[int, ...]
    group_policy: str = ISOLATE


def _ways(request: PodRequest, threads: int, parts: int) -> Iterator[list[_CoreThreads]]:
    """Yield the ways to take the CPUs on each of these NUMA nodes, `parts` in all, best first."""
    if not (request.bound and request.need):
        yield [_CoreThreads("CPUs of a pool", ())] * parts
        return
    full = (request.required_bind or request.preferred_bind) is BindPolicy.FULL_PCPUS
    strict = bool(request.required_bind)
    if full and not (strict and request.need % threads):
        yield _whole_cores(request.need, threads, parts, strict=strict)
    if full and strict:
        return
    alone = "a thread each of different cores"
    spread = [_CoreThreads(alone, (1,) * share) for share in _even(request.need, parts, 1)]
    if not full:
        yield spread
    if not strict:
        yield [each._replace(meaning="any free threads", group_policy="none") for each in spread]


def _whole_cores(need: int, threads: int, parts: int, *, strict: bool) -> list[_CoreThreads]:
    grain = threads if strict or need % (threads * parts) == 0 else 1
    dealt = [divmod(share, threads) for share in _even(need, parts, grain)]
    return [
        _CoreThreads("whole cores", (threads,) * cores + ((rest,) if rest else ())) for cores, rest in dealt
    ]


def _even(need: int, parts: int, grain: int) -> list[int]:
    """Deal CPUs over a number of NUMA nodes, in multiples of `grain` where possible."""
    units, rest = divmod(need, grain)
    shares = [grain * (units // parts + (1 if part < units % parts else 0)) for part in range(parts)]
    shares[0] += rest
    return shares


def _groups(
    request: PodRequest, shape: ClusterShape, core_threads: Sequence[_CoreThreads], *, is_aligned: bool
) -> tuple[tuple[QueryGroup, ...], tuple[tuple[str, ...], ...]]:
    """Return the groups, cores in these ways and NUMA nodes if aligned, and which lie in one subtree."""

    def numa_amounts(offered: Collection[str], part: int, parts: int) -> dict[str, int]:
        """Return the amounts that one of `parts` NUMA nodes gives, rounded up to units."""
        shares = {
            name: amount // parts + (1 if part < amount % parts else 0)
            for name, amount in request.amounts.items()
            if name in offered
        }
        kinds = {name: numa_class(name) for name in shares}
        return {kinds[name].name: -(-share // kinds[name].unit) for name, share in shares.items() if share}

    groups: list[QueryGroup] = []
    subtrees = []
    for part, way in enumerate(core_threads):
        tag = f"{part}_" if len(core_threads) > 1 else ""
        cores = [
            QueryGroup(f"_c{tag}{number}", ((CORE_CLASS, count),)) for number, count in enumerate(way.counts)
        ]
        if is_aligned:
            suffix = f"_numa{part}" if len(core_threads) > 1 else "_numa"
            shares = numa_amounts(shape.on_numa, part, len(core_threads))
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
