import pytest

from tests.unit.flavors.nova.samples import problem_codes, translated

GRANULAR = {"numa": "granular"}
TWO_NODES = {"hw:numa_nodes": "2"}


def test_each_cell_is_a_group_of_its_own_on_a_numa_root():
    specs = {**TWO_NODES, "resources:VCPU": "3", "resources:PCPU": "5"}
    translation = translated(specs, options=GRANULAR, vcpus=8, memory_mb=512)
    assert {suffix: dict(group.resources) for suffix, group in translation.groups.items()} == {
        "": {"DISK_GB": 1},
        "_numa0": {"VCPU": 2, "PCPU": 2, "MEMORY_MB": 256},
        "_numa1": {"VCPU": 1, "PCPU": 3, "MEMORY_MB": 256},
    }
    assert translation.groups["_numa1"].required == {"HW_NUMA_ROOT"}
    assert translation.group_policy == "isolate"
    assert translation.microversion == "1.33"


def test_without_cells_granular_is_flat():
    assert translated(options=GRANULAR) == translated()


def test_cell_zero_carries_the_emulator_even_without_dedicated_cpus_of_its_own():
    specs = {
        "hw:cpu_policy": "mixed",
        "hw:cpu_dedicated_mask": "2-3",
        "hw:emulator_threads_policy": "isolate",
        **TWO_NODES,
    }
    groups = translated(specs, options=GRANULAR).groups
    assert groups["_numa0"].resources == {"VCPU": 2, "PCPU": 1, "MEMORY_MB": 512}
    assert groups["_numa1"].resources == {"PCPU": 2, "MEMORY_MB": 512}


def test_traits_stay_with_a_base_group_that_has_resources_and_else_go_to_the_root():
    specs = {**TWO_NODES, "trait:CUSTOM_B": "required", "trait:CUSTOM_A": "forbidden"}
    with_disk = translated(specs, options=GRANULAR)
    assert with_disk.groups[""].traits == ("CUSTOM_B", "!CUSTOM_A")
    assert with_disk.root_required == ()
    without_disk = translated(specs, options=GRANULAR, root_gb=0)
    assert "" not in without_disk.groups
    assert without_disk.root_required == ("CUSTOM_B", "!CUSTOM_A")
    assert without_disk.microversion == "1.35"


def test_an_override_with_the_very_totals_is_no_conflict():
    specs = {**TWO_NODES, "resources:VCPU": "4", "resources:MEMORY_MB": "1024"}
    assert problem_codes(specs, options=GRANULAR) == []


@pytest.mark.parametrize(
    "override",
    [
        {"resources:MEMORY_MB": "2048"},
        {"resources:VCPU": "2"},
        {"resources:VCPU": "0"},
        {"resources1:MEMORY_MB": "0"},
        {"resources_numa7:VGPU": "1"},
        {"resources_numa0:VGPU": "1"},
    ],
)
def test_anything_but_the_totals_of_the_cells_is_a_conflict(override):
    assert problem_codes({**TWO_NODES, **override}, options=GRANULAR) == ["numa_override_conflict"]


def test_a_suffixed_group_may_not_ask_for_what_the_cells_ask_for():
    codes = problem_codes({**TWO_NODES, "resources1:VCPU": "4"}, options=GRANULAR)
    assert set(codes) == {"numa_override_conflict"}


def test_the_policy_none_contradicts_two_cells_but_not_one():
    assert problem_codes({**TWO_NODES, "group_policy": "none"}, options=GRANULAR) == ["group_policy_conflict"]
    one = {"hw:numa_nodes": "1", "group_policy": "none"}
    assert translated(one, options=GRANULAR).group_policy == "none"
    assert translated({"hw:numa_nodes": "1"}, options=GRANULAR).group_policy is None


def test_one_cell_and_a_device_group_need_a_policy():
    specs = {"hw:numa_nodes": "1", "resources1:VGPU": "1"}
    assert problem_codes(specs, options=GRANULAR) == ["group_policy_required"]


def test_a_cell_that_asks_for_nothing_is_an_error():
    layout = {"hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "1024", "hw:numa_cpus.1": "^0", "hw:numa_mem.1": "0"}
    assert problem_codes({**TWO_NODES, **layout}, options=GRANULAR) == ["traits_without_resources"]


def test_the_fallback_asks_each_cell_for_shared_cpus():
    specs = {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"}
    translation = translated(specs, options={**GRANULAR, "pcpu_fallback": True})
    assert translation.fallback_querystring == (
        "required_numa0=HW_NUMA_ROOT&resources=DISK_GB%3A1&resources_numa0=MEMORY_MB%3A1024%2CVCPU%3A4"
    )


def test_a_device_group_can_be_tied_to_a_cell():
    options = {**GRANULAR, "device_cells": {"_gpu": 1}}
    translation = translated({**TWO_NODES, "resources_gpu:VGPU": "1"}, options=options)
    assert translation.same_subtree == (("_gpu", "_numa1"),)
    assert translation.querystring.endswith("&same_subtree=_gpu%2C_numa1")
    assert translation.microversion == "1.36"


@pytest.mark.parametrize("cells", [{"_gpu": 2}, {"_nic": 0}, {"": 0}])
def test_a_tie_needs_a_suffixed_group_and_a_cell(cells):
    options = {**GRANULAR, "device_cells": cells}
    assert problem_codes({**TWO_NODES, "resources_gpu:VGPU": "1"}, options=options) == ["options_invalid"]
    assert problem_codes({"resources_gpu:VGPU": "1"}, options={"device_cells": {"_gpu": 0}}) == [
        "options_invalid"
    ]


def test_a_problem_elsewhere_does_not_turn_into_complaints_about_the_cells():
    options = {**GRANULAR, "device_cells": {"_gpu": 1}}
    specs = {**TWO_NODES, "resources_gpu:VGPU": "1", "hw:cpu_policy": "foo"}
    assert problem_codes(specs, options=options, root_gb=0) == ["cpu_policy_invalid"]
