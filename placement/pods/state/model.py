"""The types that carry pods and nodes: what the dialects read, and all else works with."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from hashlib import sha1
from typing import Any

from placement.common.gang import Gang, Membership
from placement.common.manifest import Field, ManifestReport, Profile
from placement.engine.domain.tree_specs import TreeSpec
from placement.engine.numa import host as numa_host
from placement.engine.numa.cpus import CpuSet, CpuTopology, SharedPool
from placement.engine.scoring.host_scores import favours_full
from placement.engine.scoring.order import DEFAULT_SCORING, POD_SCORING, Order, Strategy
from placement.pods.manifests import selection as manifests_selection
from placement.pods.manifests.affinity import NO_AFFINITY, LabelPairs, PodAffinity, PodRules
from placement.pods.manifests.ports import HostPorts
from placement.pods.manifests.undecided import Undecided


class QosClass(StrEnum):
    """A class: what a pod may expect of its CPUs, and which pods share them; `UNSET` if its label names none.

    Every rule that depends on the class is a question that the class answers.
    Source: koordinator.md, "QoS class".
    """

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    UNSET = ""

    @property
    def owns_cpus(self) -> bool:
        """Return whether its pods get CPUs of their own, so that they must request whole ones."""
        return self in (QosClass.LSE, QosClass.LSR)

    @property
    def shares_with_best_effort(self) -> bool:
        """Return whether best-effort pods may run on the CPUs that its pods own."""
        return self is not QosClass.LSE

    @property
    def uses_ls_pools(self) -> bool:
        """Return whether its pods run in the pools of latency-sensitive pods."""
        return self is QosClass.LS

    @property
    def uses_system_cpus(self) -> bool:
        """Return whether its pods run on the CPUs that a node keeps for the system."""
        return self is QosClass.SYSTEM

    @property
    def is_best_effort(self) -> bool:
        """Return whether its pods run on what others leave, and may request batch resources."""
        return self is QosClass.BE


class KubernetesQos(StrEnum):
    """The class Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class HostBindPolicy(StrEnum):
    """A policy by which a host binds every pod that asks for CPUs; `NONE` leaves it to the pod."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


@dataclass(frozen=True, slots=True)
class KubeletPolicy:
    """Kubelet's CPU manager policy (`static`, `none`, empty = not reported) and its options."""

    policy: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """Return whether kubelet pins CPUs itself."""
        return self.policy == "static"

    def has_option(self, name: str) -> bool:
        """Return whether the static policy runs with that option; other policies have none."""
        return self.is_static and self.options.get(name) == "true"


class Takeover(StrEnum):
    """A state of taking the CPUs of a host over from kubelet's static CPU manager to Koordinator."""

    MIXED = "mixed"
    TAKEN_OVER = "taken over"
    BLIND = "blind"


@dataclass(frozen=True, slots=True)
class HostPolicies:
    """The effective policies of a host; a NUMA policy or strategy of None is left to the cluster's setting.

    `distributes_over_numa`: kubelet splits what needs several NUMA nodes evenly over them.
    `whole_cores_only`: no CPU policies but FullPCPUs and NUMANodeLevel have an effect.
    """

    bind: HostBindPolicy = HostBindPolicy.NONE
    numa: numa_host.NumaPolicy | None = None
    strategy: numa_host.NumaStrategy | None = None
    distributes_over_numa: bool = False
    whole_cores_only: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The scheduler settings of a cluster (koordinator.md, "Scheduler settings", "Profiles").

    `guaranteed_qos` is the class that Kubernetes' Guaranteed stands for when a priority class is derived.
    `keeps_sub_priority`: that label of a pod must not change. A CPU may be held `share_limit` times. The
    defaults for exclusivity and the NUMA policy only count under `design`; a NUMA strategy of None follows
    the NUMA scoring.
    """

    profile: Profile = Profile.DESIGN
    default_bind_policy: numa_host.BindPolicy = numa_host.BindPolicy.FULL_PCPUS
    default_exclusive_level: numa_host.ExclusiveLevel = numa_host.ExclusiveLevel.NONE
    default_numa_policy: numa_host.NumaPolicy = numa_host.NumaPolicy.NONE
    default_numa_strategy: numa_host.NumaStrategy | None = None
    host_scoring: Order = POD_SCORING
    numa_scoring: Strategy = DEFAULT_SCORING
    guaranteed_qos: QosClass = QosClass.LSR
    keeps_sub_priority: bool = True
    share_limit: int = 1

    @property
    def follows_design(self) -> bool:
        """Return whether what the design documents promise beats what the running scheduler does."""
        return self.profile is Profile.DESIGN

    @property
    def numa_strategy(self) -> numa_host.NumaStrategy:
        """Return the strategy of hosts that name none."""
        strategy = self.default_numa_strategy
        if strategy is None:
            fullest_first = favours_full(self.numa_scoring)
            return (
                numa_host.NumaStrategy.MOST_ALLOCATED
                if fullest_first
                else numa_host.NumaStrategy.LEAST_ALLOCATED
            )
        if strategy is numa_host.NumaStrategy.DISTRIBUTE_EVENLY and not self.follows_design:
            return numa_host.NumaStrategy.LEAST_ALLOCATED
        return strategy


# Nodes.


@dataclass(frozen=True, slots=True)
class KubeletPod:
    """A pod that is reported with logical CPUs; only CPUs of the host's topology, at least one."""

    namespace: str
    name: str
    uid: str
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class HostCpus:
    """The CPUs of a host: where they sit, what kubelet does with them, which cannot be allocated.

    CPU sets hold logical CPU ids of the topology, which is empty when no CPUs are reported. `withheld_cpus`
    are the unallocatable CPUs that unbound pods cannot run on either, though no pod holds them: the node
    reservation and an exclusive SYSTEM list. Kubelet's reserved CPUs stay in the pools. `reserved_cpus` adds
    them to `withheld_cpus`; `system_cpus` has the exclusive SYSTEM list. `reported_pods` were given CPUs by a
    scheduler. `unreadable` are findings about what withholds CPUs: while there are any, no pod is bound
    there.
    """

    topology: CpuTopology
    kubelet: KubeletPolicy
    kubelet_pods: tuple[KubeletPod, ...]
    unallocatable_cpus: CpuSet
    withheld_cpus: CpuSet
    reserved_cpus: CpuSet
    system_cpus: CpuSet
    reported_pods: tuple[KubeletPod, ...]
    unreadable: tuple[str, ...]

    @property
    def takeover(self) -> Takeover:
        """Return mixed while kubelet pins CPUs or may pin them, taken over if not, blind if not reported.

        Source: koordinator.md, "Taking a host over".
        """
        if self.kubelet_pods or self.kubelet.is_static:
            return Takeover.MIXED
        return Takeover.TAKEN_OVER if self.kubelet.policy == "none" else Takeover.BLIND


@dataclass(frozen=True, slots=True)
class NodeImport(HostCpus):
    """A host as its two manifests describe it; `name` is the Kubernetes name.

    `amplification` has the host's ratios above 1 by Kubernetes resource name. `zones` are the amounts of NUMA
    nodes by resource as reported, to be multiplied unless `zones_amplified`: millicores for `cpu`, else bytes
    or pieces. `resource_names` leads from each resource class in the tree to its Kubernetes resource.
    `withholding` are the warnings that what the host withholds from pods cannot be read.
    """

    name: str
    tree: TreeSpec
    policies: HostPolicies
    amplification: Mapping[str, Fraction]
    zones_amplified: bool
    zones: Mapping[int, numa_host.ResourceAmounts]
    resource_names: Mapping[str, str]
    ls_pools: tuple[SharedPool, ...]
    be_pools: tuple[SharedPool, ...]
    warnings: tuple[str, ...]
    withholding: tuple[str, ...]


_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/provider")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """The identity from which names and uuids of a host's providers derive; `key` is its uid or name.

    `stored` are the uuids by path of a tree that was made from another key, which is not known any more.
    """

    cluster: str
    host: str
    key: str
    stored: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def uid(self) -> str | None:
        """Return the uid of the Node object, None if it has none or if it is not known any more."""
        return None if self.stored or self.key == self.host else self.key

    def name(self, path: str = "") -> str:
        """Return the name of the provider at a path below the host, unique over all clusters."""
        return "/".join(filter(None, (self.cluster, self.host, path)))

    def path(self, name: str) -> str:
        """Return the path below the host of the provider of that name; empty for the host itself."""
        return name.removeprefix(self.name()).removeprefix("/")

    def uuid(self, path: str = "") -> str:
        """Return the uuid of that provider, the same on every import (koordinator.md, "Tree").

        It is what uuid.uuid5 returns, without objects, as calls with many hosts need thousands.
        Source: RFC 9562, section 5.5.
        """
        if path in self.stored:
            return self.stored[path]
        name = "/".join((self.cluster, self.key, path))
        digits = sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


# Pods that look for a node.


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """The policies as they are written, empty where absent; `document` is the whole annotation."""

    required_bind: str = ""
    preferred_bind: str = ""
    exclusive: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumaTopologySpec:
    """The NUMA policy a pod sets and the exclusivity it names; NONE where it says nothing."""

    policy: numa_host.NumaPolicy = numa_host.NumaPolicy.NONE
    exclusivity: numa_host.NumaExclusivity = numa_host.NumaExclusivity.NONE

    @property
    def effective_exclusivity(self) -> numa_host.NumaExclusivity:
        """Return the named exclusivity, else required exclusivity for pods that set a policy of their own.

        Source: koordinator.md, "NUMA exclusivity".
        """
        if (
            self.exclusivity is numa_host.NumaExclusivity.NONE
            and self.policy is not numa_host.NumaPolicy.NONE
        ):
            return numa_host.NumaExclusivity.REQUIRED
        return self.exclusivity


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Logical CPUs of the pod's own, amounts by NUMA node, and pools of NUMA nodes, as (socket, NUMA id)."""

    cpus: CpuSet = frozenset()
    amounts: numa_host.NumaAmounts = numa_host.NOTHING
    pools: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the pod was given nothing."""
        return not (self.cpus or self.amounts)

    def holding(self, level: numa_host.ExclusiveLevel, qos: QosClass, group: str) -> numa_host.Holding:
        """Return the holding of a pod of this exclusivity group with this status; its label names `qos`."""
        return numa_host.Holding(self.cpus, level, self.amounts, qos.shares_with_best_effort, group)


NOTHING_GIVEN = ResourceStatus()
CPUS_MUST_BE_INTEGER = "the requested CPUs must be integer"


@dataclass(frozen=True)
class PodRequest:
    """A request of a pod to any host; equal requests get equal answers.

    `amounts` are in millicores, bytes and pieces. A `bound` pod gets `need` CPUs of its own everywhere, under
    the policies named here, which are NONE otherwise. `designated_status`: what another scheduler decided.
    `uses_ls_pools`: it runs in the LS pools unless it is bound. `burst_limit`: the millicores that the pool
    of one NUMA node has to cover. `group`: pods of the same one never share a core, or a NUMA node.
    """

    amounts: numa_host.ResourceAmounts = field(default_factory=dict)
    need: int = 0
    bound: bool = False
    required_bind: numa_host.BindPolicy = numa_host.BindPolicy.NONE
    preferred_bind: numa_host.BindPolicy = numa_host.BindPolicy.NONE
    exclusive: numa_host.ExclusiveLevel = numa_host.ExclusiveLevel.NONE
    numa: NumaTopologySpec = field(default_factory=NumaTopologySpec)
    designated_status: ResourceStatus | None = None
    ignores_reservations: bool = False
    uses_ls_pools: bool = False
    burst_limit: int | None = None
    group: str = ""

    @cached_property
    def _hash(self) -> int:
        policies = (self.bound, self.required_bind, self.preferred_bind, self.exclusive, self.numa)
        rest = (
            self.designated_status,
            self.ignores_reservations,
            self.uses_ls_pools,
            self.burst_limit,
            self.group,
        )
        return hash((frozenset(self.amounts.items()), self.need, policies, rest))

    def __hash__(self) -> int:
        return self._hash

    @property
    def milli_cpus(self) -> int:
        """Return the requested millicores."""
        return self.amounts.get("cpu", 0)


NO_REQUEST = PodRequest()
"""The request of every pod that requests nothing: neither its CPUs nor NUMA nodes matter."""


@dataclass(frozen=True, slots=True)
class ReservationAffinity:
    """The reservations that a pod accepts: the one of this name, else all to which the rest applies."""

    name: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[manifests_selection.Term, ...] | None = None

    def accepts(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the pod accepts a reservation. Source: koordinator.md, "Reservations"."""
        if self.name:
            return self.name == name
        if any(labels.get(key) != text for key, text in self.selector):
            return False
        attributes = manifests_selection.NodeAttributes(name, labels)
        return self.terms is None or any(term.holds(attributes) for term in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPod:
    """All that a manifest says about a pod wherever it is.

    `qos` is the class its label names, `treated_as` the one that decides where it runs. `containers` are
    names, `rules` what it says about other pods, `gang` with which pods it is placed together.
    """

    qos: QosClass
    treated_as: QosClass
    kubernetes_qos: KubernetesQos
    containers: tuple[str, ...]
    rules: PodRules
    gang: Gang | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec(ReadPod):
    """A pod that looks for a node.

    `spec` is its resource-spec as written. With a `reservation_affinity` it must use a reservation.
    `undecided` is what it asks for beside what is decided here.
    """

    request: PodRequest
    spec: ResourceSpec
    selection: manifests_selection.NodeSelection
    reservation_affinity: ReservationAffinity | None
    undecided: tuple[Undecided, ...] = ()


# Reservations, and pods on nodes.


class AllocatePolicy(StrEnum):
    """A policy on taking beyond what a reservation has left; only Restricted forbids it to owners."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


@dataclass(frozen=True, slots=True)
class ReservationTerms:
    """The terms of a reservation: its owners, and how they may use it.

    `allocate_once`: the first owner ends it. `order`: of several reservations on a node the lowest is used
    first, 0 is none. `labels` belong to the Reservation: pods choose by them. An `unschedulable` one
    takes no further owners. `since` is when it was made, `expires_at` when it ends, UTC without a zone, None
    if never.
    """

    owners: tuple[manifests_selection.ReservationOwner, ...]
    since: datetime.datetime
    allocate_once: bool = True
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    expires_at: datetime.datetime | None = None
    order: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False

    @property
    def restricted(self) -> bool:
        """Return whether owners get nothing beyond what is left of it."""
        return self.policy is AllocatePolicy.RESTRICTED

    def is_over(self, now: datetime.datetime) -> bool:
        """Return whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def owned_by(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod with this manifest may use it. Source: koordinator.md, "Reservations"."""
        return not self.unschedulable and any(owner.matches(pod) for owner in self.owners)

    def document(self) -> dict[str, Any]:
        """Return the terms as JSON to be stored."""
        return {
            "owners": [owner.document() for owner in self.owners],
            "since": self.since.isoformat(),
            "allocate_once": self.allocate_once,
            "policy": str(self.policy),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "order": self.order,
            "labels": dict(self.labels),
            "unschedulable": self.unschedulable,
        }


def stored_terms(document: Mapping[str, Any]) -> ReservationTerms:
    """Return the terms that a stored document describes.

    Raises LookupError, TypeError, ValueError, AttributeError, OverflowError or ManifestError for others.
    """
    report, expires_at = ManifestReport(), document.get("expires_at")
    terms = ReservationTerms(
        owners=manifests_selection.read_owners(Field("owners", document["owners"], report)),
        since=_stored_time(document["since"]),
        allocate_once=bool(document.get("allocate_once", True)),
        policy=AllocatePolicy(document.get("policy", "")),
        expires_at=None if expires_at is None else _stored_time(expires_at),
        order=int(document.get("order", 0)),
        labels=Field("labels", document.get("labels", {}), report).texts(),
        unschedulable=bool(document.get("unschedulable", False)),
    )
    # Owners that are read in part would be more pods than were meant.
    report.raise_findings()
    return terms


def _stored_time(text: str) -> datetime.datetime:
    """Return a stored time; one with a zone could not be compared with others."""
    found = datetime.datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError("the time has a zone")
    return found


UNKNOWN_TERMS = ReservationTerms(owners=(), since=datetime.datetime.min, allocate_once=False)
"""The terms of a reservation with a row that cannot be read: it is for no pod."""


NO_HOLDING = numa_host.Holding()


@dataclass(frozen=True, slots=True)
class RecordedPod:
    """A pod on a node: its identity, what it requests of the node as a whole, and what it holds there.

    `consumer` is the uuid under which it holds allocations; `qos` the class its label names, empty if none.
    `loose_amounts` are amounts that only NUMA nodes offer, of a pod that is aligned to none: where they are
    counted. `treated_as` is the class that decides in which pool it runs, empty if its label says so, `pools`
    the NUMA nodes of the pools in which it has to stay, if not in all. `unreadable`: findings about its
    resource-status; while there are any, its CPUs are unknown. `reservation` is the consumer that is the
    reservation it takes from, if it takes from one; `keeps` has the terms if it is a reservation itself,
    which has no namespace. `slots` is how many of its node's pods it counts as. By `labels` other pods want
    it near or apart, `affinity` is what it wants itself, `membership` is about its gang. `is_leaving`: it is
    being deleted, and so counts for no topology spread. No other pod gets its `host_ports` until it is gone.
    """

    namespace: str
    name: str
    uid: str
    consumer: str
    qos: str
    requests: numa_host.ResourceAmounts
    holding: numa_host.Holding = NO_HOLDING
    loose_amounts: numa_host.NumaAmounts = numa_host.NOTHING
    unreadable: tuple[str, ...] = ()
    treated_as: str = ""
    pools: tuple[int, ...] = ()
    reservation: str = ""
    keeps: ReservationTerms | None = None
    slots: int = 1
    labels: LabelPairs = ()
    affinity: PodAffinity = NO_AFFINITY
    membership: Membership | None = None
    is_leaving: bool = False
    host_ports: HostPorts = ()

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


RecordedReservation = RecordedPod
"""A reservation, which is recorded as its pod would be, with its terms in `keeps`."""


def pool_class(treated_as: str, qos: str, holding: numa_host.Holding) -> str:
    """Return the class to record for a pod's pool: empty if its label names it, or it has CPUs of its own."""
    return "" if holding.cpus or treated_as == qos else str(treated_as)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod(ReadPod):
    """A pod that is on a host, or was: what it requests of the host as a whole, and what it holds there.

    `holding` is empty if its resource-status is `unreadable`. While there are findings about that, no other
    pod may be bound on its host: its CPUs could be handed out a second time. `phase` is as reported; a pod
    that has ended, or has no host yet, requests nothing. `has_status`: it has a resource-status, `pools` are
    the NUMA nodes of the shared pools in it. `warnings` has the admission rules it breaks, which does not
    make it run any less. Rules, gang and `host_ports` that cannot be read have no effect.
    """

    host_ports: HostPorts
    phase: str
    requests: numa_host.ResourceAmounts
    holding: numa_host.Holding
    unreadable: tuple[str, ...]
    has_status: bool
    pools: tuple[int, ...]
