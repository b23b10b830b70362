"""A pod as queries for allocation candidates, from the best to what is still acceptable.

Source: koordinator.md, "Queries".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placement.dialects.koordinator.node.host_policies import HostBindPolicy
from placement.dialects.koordinator.node.traits import BIND_TRAITS, NUMA_POLICY_TRAITS, NUMA_TRAITS
from placement.dialects.koordinator.pod.fallback_queries import ISOLATE, FallbackQuery, QueryGroup
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.resources import (
    CORE_CLASS,
    CPU_CLASS,
    host_class,
    numa_class,
)
from placement.numa.amounts import Amounts
from placement.numa.demand import BindPolicy, NumaPolicy

_NUMA = "_numa"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """What the hosts of a cluster look like, as far as queries depend on it.

    `aggregate` is the one all hosts are in; `most_cpus` are the logical CPUs of the largest host for each
    number of threads per core that occurs, `policies` the effective NUMA policies and `untold` those of hosts
    that have no trait to tell theirs, `numa_nodes` the most NUMA nodes of a host. `on_numa` are resources
    that NUMA nodes offer; `below` those that only they do.
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
    """The queries for a pod, best first; `labels` are traits that its node must have.

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
    """The NUMA policies under which the pod may end up: its own one beats hosts that have none."""
    own = request.numa.policy
    if own is not NumaPolicy.NONE:
        return [own]
    return sorted(shape.policies, key=list(NumaPolicy).index) or [NumaPolicy.NONE]


@dataclass(frozen=True, slots=True)
class _Cores:
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
        """Over how many NUMA nodes the pod may be split, best first; 0 for no alignment."""
        if self.policy is not NumaPolicy.NONE:
            yield 1
        if self.policy in (NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT):
            yield from range(2, self.shape.numa_nodes + 1)
        if self.policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT):
            yield 0

    def _ways(self, parts: int) -> Iterator[list[_Cores]]:
        """The ways to take the CPUs on each of so many NUMA nodes, best first."""
        if not (self.request.bound and self.request.need):
            yield [_Cores("CPUs of a pool", ())] * parts
            return
        full = (self.request.required_bind or self.request.preferred_bind) is BindPolicy.FULL_PCPUS
        strict = bool(self.request.required_bind)
        threads, need = self.threads, self.request.need
        if full and not (strict and need % threads):
            grain = threads if strict or need % (threads * parts) == 0 else 1
            shares = _even(need, parts, grain)
            yield [_Cores("whole cores", _whole(share, threads)) for share in shares]
        if full and strict:
            return
        spread = [_Cores("a thread each of different cores", (1,) * share) for share in _even(need, parts, 1)]
        if not full:
            yield spread
        if not strict:
            yield [replace(each, meaning="any free threads", group_policy="none") for each in spread]

    def _fallback(self, base: FallbackQuery, numa_nodes: int, ways: Sequence[_Cores]) -> FallbackQuery:
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

    def _numa_share(self, way: _Cores, part: int, parts: int) -> tuple[tuple[str, int], ...]:
        shares = dict(self._numa_amounts(self.shape.on_numa, part, parts))
        if way.counts:
            shares[CPU_CLASS] = 1000 * sum(way.counts)
        return tuple(shares.items())

    def _numa_amounts(self, offered: Collection[str], part: int, parts: int) -> Iterator[tuple[str, int]]:
        """What one of so many NUMA nodes gives of what they offer, rounded up to units."""
        for name, share in _parts_of(self.request.amounts, part, parts):
            if name in offered and share:
                kind = numa_class(name)
                yield kind.name, -(-share // kind.unit)

    def _meaning(self, numa_nodes: int, way: _Cores) -> str:
        where = {0: "anywhere on a host", 1: "on one NUMA node"}.get(
            numa_nodes, f"evenly on {numa_nodes} NUMA nodes"
        )
        cores = f", {self.threads} threads per core" if self.threads and way.counts else ""
        return f"{way.meaning}{cores}, {where}"


def _parts_of(amounts: Amounts, part: int, parts: int) -> Iterator[tuple[str, int]]:
    for name, amount in amounts.items():
        yield name, amount // parts + (1 if part < amount % parts else 0)


def _even(need: int, parts: int, grain: int) -> list[int]:
    """CPUs dealt over so many NUMA nodes, in multiples of `grain` as far as possible."""
    units, rest = divmod(need, grain)
    shares = [grain * (units // parts + (1 if part < units % parts else 0)) for part in range(parts)]
    shares[0] += rest
    return shares


def _whole(share: int, threads: int) -> tuple[int, ...]:
    return (threads,) * (share // threads) + ((share % threads,) if share % threads else ())
