import pytest

from placement.engine.domain.groups import SplitRule
from tests.unit.flavors.nova.samples import translated

DEDICATED = {"hw:cpu_policy": "dedicated"}


def asked(specs, **fields):
    query = translated(specs, **fields).on_core_trees
    return None if query is None else {group.suffix: group for group in query.groups}


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (None, SplitRule.PACK),
        ("prefer", SplitRule.PACK),
        ("require", SplitRule.REQUIRE),
        ("isolate", SplitRule.ISOLATE),
    ],
)
def test_a_thread_policy_is_a_rule_and_no_trait(policy, rule):
    specs = {**DEDICATED, **({"hw:cpu_thread_policy": policy} if policy else {})}
    groups = asked(specs, vcpus=4, memory_mb=1024)
    assert groups["_numa0"].resources == {"PCPU": 4, "MEMORY_MB": 1024}
    assert (groups["_numa0"].split, groups["_numa0"].split_rule) == ({"PCPU"}, rule)
    assert groups[""].resources == {"DISK_GB": 1}
    assert not any(group.required or group.forbidden for group in groups.values())


def test_a_trait_that_is_written_out_stays():
    groups = asked({**DEDICATED, "trait:HW_CPU_HYPERTHREADING": "forbidden"})
    assert groups[""].forbidden == {"HW_CPU_HYPERTHREADING"}
    assert groups["_numa0"].split_rule is SplitRule.ISOLATE


def test_traits_without_amounts_are_those_of_the_root():
    specs = {**DEDICATED, "trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden"}
    query = translated(specs, options={"boot_from_volume": True}).on_core_trees
    assert (query.root_required, query.root_forbidden) == ({"CUSTOM_A"}, {"CUSTOM_B"})


def test_the_emulator_is_apart_only_where_it_would_upset_pairs():
    emulator = {**DEDICATED, "hw:emulator_threads_policy": "isolate"}
    assert asked(emulator, vcpus=4)["_numa0"].resources["PCPU"] == 5
    query = translated({**emulator, "hw:cpu_thread_policy": "require"}, vcpus=4).on_core_trees
    groups = {group.suffix: group for group in query.groups}
    assert groups["_numa0"].resources["PCPU"] == 4
    assert groups["_numa_emulator"].resources == {"PCPU": 1}
    assert query.same_subtree == (frozenset(("_numa0", "_numa_emulator")),)


def test_cells_without_dedicated_cpus_split_nothing():
    specs = {"hw:numa_nodes": "2", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"}
    groups = asked(specs, vcpus=4, memory_mb=1024)
    assert groups["_numa0"].resources == {"VCPU": 2, "MEMORY_MB": 512}
    assert not groups["_numa0"].split
    assert groups["_numa1"].resources == {"PCPU": 2, "MEMORY_MB": 512}


@pytest.mark.parametrize(
    "specs",
    [
        {},
        {**DEDICATED, "resources:MEMORY_MB": "0"},
        {**DEDICATED, "resources_numa7:VGPU": "1"},
        {**DEDICATED, "hw:numa_nodes": "2", "resources:MEMORY_MB": "2048"},
        {**DEDICATED, "hw:numa_nodes": "2", "resources1:MEMORY_MB": "1024"},
    ],
    ids=["no cells", "a cell without memory", "a suffix like a cell's", "overridden", "asked for elsewhere"],
)
def test_core_trees_are_asked_the_same_where_cells_cannot_be_told(specs):
    assert translated(specs, vcpus=4, memory_mb=1024).on_core_trees is None


def test_an_overridden_amount_counts_where_there_is_one_cell():
    groups = asked({**DEDICATED, "resources:MEMORY_MB": "4096"}, vcpus=4, memory_mb=1024)
    assert groups["_numa0"].resources == {"PCPU": 4, "MEMORY_MB": 4096}
