"""Worked examples of allocation candidates: small topologies, queries, and the candidates they must give.

Plain data in names (`cn1`, `A1`). A set of labels turns the names of a topology into uuids, so that the same
rows can be put to a function or to a running service. Source: placement-api.md, "Worked examples".
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from string import Formatter

from placement.engine.domain.inventories import Inventory
from tests.naive import SHARING_TRAIT, Candidate, NaiveProvider
from tests.querystring import Pairs

Placed = Mapping[str, Mapping[str, Mapping[str, int]]]
"""One candidate, group by group: suffix -> provider name -> resource class -> amount."""

Labels = Mapping[str, str]
"""Name of a provider or aggregate -> uuid."""

PRECISE_MICROVERSION = "1.39"


@dataclass(frozen=True)
class WorkedExample:
    """A row: the query string, with `{name}` where a uuid belongs, and all candidates it gives."""

    topology: str
    query: str
    expected: tuple[Placed, ...]
    microversion: str = PRECISE_MICROVERSION

    @property
    def id(self) -> str:
        """What to call the row in a test report."""
        return f"{self.topology}@{self.microversion}?{self.query}"

    @property
    def one_provider_per_tree(self) -> bool:
        """Whether the microversion is one before 1.29."""
        return int(self.microversion.removeprefix("1.")) < 29


def labels(topology: str) -> dict[str, str]:
    """A fresh uuid for every provider and aggregate that the topology or a query on it names."""
    names = {provider.uuid for provider in TOPOLOGIES[topology]}
    names |= {name for provider in TOPOLOGIES[topology] for name in provider.aggregates}
    for example in EXAMPLES:
        if example.topology == topology:
            names |= {name for _, name, _, _ in Formatter().parse(example.query) if name}
    return {name: str(uuid.uuid4()) for name in sorted(names)}


def providers(topology: str, labels: Labels) -> list[NaiveProvider]:
    """The providers of a topology under their uuids, parents before children."""
    return [
        replace(
            provider,
            uuid=labels[provider.uuid],
            parent=labels[provider.parent] if provider.parent else None,
            aggregates=frozenset(labels[name] for name in provider.aggregates),
        )
        for provider in TOPOLOGIES[topology]
    ]


def parameters(example: WorkedExample, labels: Labels) -> Pairs:
    """The parameters of the row's query string, not yet encoded."""
    pairs = (parameter.partition("=") for parameter in example.query.format_map(labels).split("&"))
    return [(key, value) for key, _, value in pairs]


def candidates(example: WorkedExample, labels: Labels) -> set[Candidate]:
    """What the row expects. Its candidates are all different, so none is lost in the set."""
    return {_candidate(placed, labels) for placed in example.expected}


def _candidate(placed: Placed, labels: Labels) -> Candidate:
    sums: Counter[tuple[str, str]] = Counter()
    for by_provider in placed.values():
        for name, resources in by_provider.items():
            for resource_class, amount in resources.items():
                sums[labels[name], resource_class] += amount
    return Candidate(
        allocations=frozenset(
            (name, resource_class, amount) for (name, resource_class), amount in sums.items()
        ),
        mappings=frozenset(
            (suffix, frozenset(labels[name] for name in by_provider))
            for suffix, by_provider in placed.items()
        ),
    )


def _provider(
    name: str,
    parent: str | None = None,
    traits: str = "",
    aggregates: str = "",
    used: Mapping[str, int] | None = None,
    **totals: int | Inventory,
) -> NaiveProvider:
    return NaiveProvider(
        uuid=name,
        parent=parent,
        inventories={
            resource_class: total if isinstance(total, Inventory) else Inventory(total=total)
            for resource_class, total in totals.items()
        },
        used=used or {},
        traits=frozenset(traits.split()),
        aggregates=frozenset(aggregates.split()),
    )


TOPOLOGIES: dict[str, tuple[NaiveProvider, ...]] = {
    "E1-sharing": (
        _provider("cn1", VCPU=8, aggregates="A1", traits="CUSTOM_A"),
        _provider("cn2", VCPU=8, DISK_GB=100, traits="CUSTOM_B"),
        _provider("ss", DISK_GB=100, aggregates="A1", traits=f"{SHARING_TRAIT} CUSTOM_SSD"),
        _provider("sx", DISK_GB=100, traits=SHARING_TRAIT),
    ),
    "E2-tree": (
        _provider("cn", aggregates="A1", traits="CUSTOM_ROOT"),
        _provider("n0", "cn", VCPU=8, MEMORY_MB=100, traits="CUSTOM_N0"),
        _provider("n1", "cn", VCPU=8, MEMORY_MB=100, aggregates="A2", traits="CUSTOM_N1"),
    ),
    "E3-subtree": (
        _provider("cn", DISK_GB=100, traits="CUSTOM_ROOT"),
        _provider("n0", "cn", VCPU=8, traits="CUSTOM_NUMA"),
        _provider("g0", "n0", VGPU=4),
        _provider("n1", "cn", VCPU=8, traits="CUSTOM_NUMA CUSTOM_X"),
        _provider("g1", "n1", VGPU=4),
    ),
    "E4-merging": (
        _provider("p"),
        _provider("k0", "p", FPGA=2, used={"FPGA": 1}),
        _provider("k1", "p", FPGA=2),
    ),
    "E4-ratio": (_provider("p", VCPU=Inventory(total=4, allocation_ratio=1.3), used={"VCPU": 3}),),
    "E5-child": (
        _provider("cn", VCPU=8, aggregates="A1"),
        _provider("kid", "cn", VGPU=1, aggregates="A3"),
        _provider("s1", DISK_GB=100, aggregates="A1", traits=SHARING_TRAIT),
        _provider("s3", FPGA=4, aggregates="A3", traits=SHARING_TRAIT),
    ),
}


def _sharing() -> list[WorkedExample]:
    vcpu, disk = {"VCPU": 1}, {"DISK_GB": 10}
    cn1_ss = {"": {"cn1": vcpu, "ss": disk}}
    cn2 = {"": {"cn2": vcpu | disk}}
    apart = {"": {"cn1": vcpu}, "1": {"ss": disk}}
    both = "resources=VCPU:1,DISK_GB:10"
    two = "resources1=VCPU:1&resources2=DISK_GB:10"
    rows: dict[str, tuple[Placed, ...]] = {
        both: (cn1_ss, cn2),
        "resources=DISK_GB:10": ({"": {"cn2": disk}}, {"": {"ss": disk}}, {"": {"sx": disk}}),
        f"{two}&group_policy=none": (
            {"1": {"cn1": vcpu}, "2": {"ss": disk}},
            {"1": {"cn2": vcpu}, "2": {"cn2": disk}},
        ),
        f"{two}&group_policy=isolate": ({"1": {"cn1": vcpu}, "2": {"ss": disk}},),
        "resources1=VCPU:1,DISK_GB:10": ({"1": {"cn2": vcpu | disk}},),
        f"{both}&required=CUSTOM_A,CUSTOM_SSD": (cn1_ss,),
        f"{both}&required=CUSTOM_B,CUSTOM_SSD": (),
        f"{both}&required=!CUSTOM_SSD": (cn2,),
        "resources=VCPU:1&required=CUSTOM_SSD": (),
        f"{both}&member_of={{A1}}": (cn1_ss,),
        f"{both}&member_of=!{{A1}}": (cn2,),
        f"{both}&in_tree={{cn1}}": (),
        "resources=VCPU:1&in_tree={cn1}&resources1=DISK_GB:10": (apart,),
        "resources=VCPU:1&resources1=DISK_GB:10&in_tree1={ss}": (apart,),
        "resources=DISK_GB:10&root_required=CUSTOM_SSD": ({"": {"ss": disk}},),
        "resources=DISK_GB:10&root_required=!CUSTOM_SSD": (
            {"": {"cn2": disk}},
            {"": {"ss": disk}},
            {"": {"sx": disk}},
        ),
    }
    return [WorkedExample("E1-sharing", query, expected) for query, expected in rows.items()]


def _tree() -> list[WorkedExample]:
    vcpu, memory = {"VCPU": 1}, {"MEMORY_MB": 1}
    n0, n1 = {"": {"n0": vcpu | memory}}, {"": {"n1": vcpu | memory}}
    v0_m1, v1_m0 = {"": {"n0": vcpu, "n1": memory}}, {"": {"n1": vcpu, "n0": memory}}
    cpu0, cpu1 = {"": {"n0": vcpu}}, {"": {"n1": vcpu}}
    one0, one1 = {"1": {"n0": vcpu}}, {"1": {"n1": vcpu}}
    both = "resources=VCPU:1,MEMORY_MB:1"
    rows: dict[str, tuple[Placed, ...]] = {
        both: (n0, n1, v0_m1, v1_m0),
        f"{both}&required=CUSTOM_N0": (n0, v0_m1, v1_m0),
        f"{both}&required=CUSTOM_N0,CUSTOM_N1": (v0_m1, v1_m0),
        f"{both}&required=!CUSTOM_N0": (n1,),
        f"{both}&required=CUSTOM_N1,!CUSTOM_N0": (n1,),
        "resources=VCPU:1&required=CUSTOM_ROOT": (),
        "resources=VCPU:1&required=!CUSTOM_ROOT": (cpu0, cpu1),
        "resources=VCPU:1&root_required=CUSTOM_ROOT": (cpu0, cpu1),
        "resources1=VCPU:1,MEMORY_MB:1&required1=CUSTOM_N0,CUSTOM_N1": (),
        "resources=VCPU:1&member_of={A1}": (cpu0, cpu1),
        "resources=VCPU:1&member_of={A2}": (cpu1,),
        "resources=VCPU:1&member_of={A1}&member_of={A2}": (),
        "resources=VCPU:1&member_of=in:{A1},{A2}": (cpu0, cpu1),
        "resources=VCPU:1&member_of=!{A1}": (),
        "resources=VCPU:1&member_of=!{A2}": (cpu0,),
        "resources=VCPU:1&member_of={A1}&member_of=!{A2}": (cpu0,),
        "resources1=VCPU:1&member_of1={A1}": (),
        "resources1=VCPU:1&member_of1=!{A1}": (one0, one1),
        "resources1=VCPU:1&member_of1=!{A2}": (one0,),
        "resources=VCPU:1&in_tree={n0}": (cpu0, cpu1),
    }
    return [
        *(WorkedExample("E2-tree", query, expected) for query, expected in rows.items()),
        WorkedExample("E2-tree", both, (n0, n1), microversion="1.28"),
    ]


def _subtree() -> list[WorkedExample]:
    vcpu, vgpu = {"VCPU": 1}, {"VGPU": 1}
    nothing: dict[str, int] = {}
    pair = "resources_C=VCPU:1&resources_G=VGPU:1&group_policy=none"
    below = "resources_C=VCPU:1&same_subtree=_C,_N"
    gpus = "resources_A=VGPU:1&resources_B=VGPU:1&group_policy=isolate"
    rows: dict[str, tuple[Placed, ...]] = {
        f"{pair}&same_subtree=_C,_G": (
            {"_C": {"n0": vcpu}, "_G": {"g0": vgpu}},
            {"_C": {"n1": vcpu}, "_G": {"g1": vgpu}},
        ),
        pair: tuple(
            {"_C": {node: vcpu}, "_G": {device: vgpu}} for node in ("n0", "n1") for device in ("g0", "g1")
        ),
        f"{below}&required_N=CUSTOM_NUMA&group_policy=none": (
            {"_C": {"n0": vcpu}, "_N": {"n0": nothing}},
            {"_C": {"n1": vcpu}, "_N": {"n1": nothing}},
        ),
        f"{below}&required_N=CUSTOM_NUMA&group_policy=isolate": (),
        f"{below}&required_N=CUSTOM_NUMA,!CUSTOM_X&group_policy=none": (
            {"_C": {"n0": vcpu}, "_N": {"n0": nothing}},
        ),
        f"{below}&required_N=in:CUSTOM_X,CUSTOM_ROOT&group_policy=none": (
            {"_C": {"n0": vcpu}, "_N": {"cn": nothing}},
            {"_C": {"n1": vcpu}, "_N": {"cn": nothing}},
            {"_C": {"n1": vcpu}, "_N": {"n1": nothing}},
        ),
        f"{gpus}&same_subtree=_A,_B": (),
        f"{gpus}&required_R=CUSTOM_ROOT&same_subtree=_A,_B,_R": (
            {"_A": {"g0": vgpu}, "_B": {"g1": vgpu}, "_R": {"cn": nothing}},
            {"_A": {"g1": vgpu}, "_B": {"g0": vgpu}, "_R": {"cn": nothing}},
        ),
        f"{pair}&required_N=CUSTOM_NUMA&same_subtree=_C,_N&same_subtree=_N,_G": (
            {"_C": {"n0": vcpu}, "_G": {"g0": vgpu}, "_N": {"n0": nothing}},
            {"_C": {"n1": vcpu}, "_G": {"g1": vgpu}, "_N": {"n1": nothing}},
        ),
    }
    return [WorkedExample("E3-subtree", query, expected) for query, expected in rows.items()]


def _merging() -> list[WorkedExample]:
    one = {"FPGA": 1}
    permuted = (
        {"1": {"k0": one}, "2": {"k1": one}},
        {"1": {"k1": one}, "2": {"k0": one}},
    )
    together = {"1": {"k1": one}, "2": {"k1": one}}
    both = "resources1=FPGA:1&resources2=FPGA:1"
    return [
        WorkedExample("E4-merging", f"{both}&group_policy=none", (*permuted, together)),
        WorkedExample("E4-merging", f"{both}&group_policy=isolate", permuted),
        WorkedExample("E4-ratio", "resources=VCPU:2", ({"": {"p": {"VCPU": 2}}},)),
        WorkedExample("E4-ratio", "resources=VCPU:3", ()),
    ]


def _child() -> list[WorkedExample]:
    vcpu, disk, fpga = {"VCPU": 1}, {"DISK_GB": 1}, {"FPGA": 1}
    rows: dict[str, tuple[Placed, ...]] = {
        "resources=VCPU:1,FPGA:1": ({"": {"cn": vcpu, "s3": fpga}},),
        "resources=DISK_GB:1,FPGA:1": ({"": {"s1": disk, "s3": fpga}},),
        "resources=VCPU:1,FPGA:1&member_of={A3}": (),
        "resources=VCPU:1,FPGA:1&member_of=in:{A1},{A3}": ({"": {"cn": vcpu, "s3": fpga}},),
    }
    return [WorkedExample("E5-child", query, expected) for query, expected in rows.items()]


EXAMPLES: tuple[WorkedExample, ...] = (*_sharing(), *_tree(), *_subtree(), *_merging(), *_child())
