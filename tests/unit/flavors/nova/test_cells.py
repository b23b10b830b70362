import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.flavors.nova.cells import deal
from tests.unit.flavors.nova.samples import problem_codes, translated

TWO_NODES = {"hw:numa_nodes": "2"}


def listed(*cells):
    """Extra specs of a manual layout, from (CPU set text, MiB text) pairs."""
    return {
        f"hw:numa_{name}.{number}": text
        for number, cell in enumerate(cells)
        for name, text in zip(("cpus", "mem"), cell, strict=True)
    }


def drawn(translation):
    """Each cell as V and P letters in the order of its CPUs."""
    return [
        "".join("V" if cpu in cell.cpuset else "P" for cpu in sorted(cell.cpuset + cell.pcpuset))
        for cell in translation.cells
    ]


@pytest.mark.parametrize(
    ("sizes", "shared", "cells"),
    [
        ([4, 4], 3, ["VVPP", "VPPP"]),
        ([8], 3, ["VVVPPPPP"]),
        ([4, 4], 4, ["VVPP", "VVPP"]),
        ([4, 4], 1, ["VPPP", "PPPP"]),
        ([4, 4], 7, ["VVVV", "VVVP"]),
        ([2, 2, 2], 2, ["VP", "VP", "PP"]),
        ([3, 3, 3, 3], 5, ["VVP", "VPP", "VPP", "VPP"]),
        ([2, 6], 3, ["VV", "VPPPPP"]),
        ([2, 6], 6, ["VV", "VVVVPP"]),
        ([1, 3, 4], 5, ["V", "VVP", "VVPP"]),
    ],
)
def test_cpus_are_dealt_in_turn_and_full_cells_are_skipped(sizes, shared, cells):
    dealt = deal(sizes, shared, sum(sizes) - shared)
    assert ["V" * shared + "P" * dedicated for shared, dedicated in dealt] == cells


def walked(sizes, shared, dedicated):
    """The rule word for word: one walk, one token after the other."""
    held = ["" for _ in sizes]
    turn = 0
    for token in "V" * shared + "P" * dedicated:
        while len(held[turn % len(sizes)]) == sizes[turn % len(sizes)]:
            turn += 1
        held[turn % len(sizes)] += token
        turn += 1
    return [(tokens.count("V"), tokens.count("P")) for tokens in held]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_dealing_equals_the_walk_of_single_tokens(sizes, data):
    shared = data.draw(st.integers(0, sum(sizes)))
    dedicated = sum(sizes) - shared
    assert deal(sizes, shared, dedicated) == walked(sizes, shared, dedicated)


@pytest.mark.parametrize(
    ("sizes", "shared", "dedicated"), [([2], 1, 2), ([], 1, 0), ([2], -1, 3), ([-1, 3], 1, 1)]
)
def test_counts_that_do_not_fill_the_cells_are_an_error(sizes, shared, dedicated):
    with pytest.raises(ValueError, match="do not fill"):
        deal(sizes, shared, dedicated)


def test_three_shared_and_five_dedicated_cpus_on_two_nodes():
    specs = {**TWO_NODES, "resources:VCPU": "3", "resources:PCPU": "5"}
    translation = translated(specs, vcpus=8, memory_mb=512)
    assert drawn(translation) == ["VVPP", "VPPP"]
    assert translation.dedicated_cpus == "2-3,5-7"


def test_the_cpus_of_a_cell_are_given_in_ascending_order():
    layout = listed(("0,2,4", "512"), ("1,3,5", "512"))
    translation = translated({**TWO_NODES, **layout, "resources:VCPU": "3", "resources:PCPU": "3"}, vcpus=6)
    assert [(cell.cpuset, cell.pcpuset) for cell in translation.cells] == [((0, 2), (4,)), ((1,), (3, 5))]


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:numa_nodes": "1"},
        {"hw:mem_page_size": "small"},
        {"hw:pmem": "A"},
        {"hw:cpu_policy": "dedicated"},
        {"resources:PCPU": "4"},
    ],
)
def test_nodes_page_size_persistent_memory_or_pinning_make_cells(specs):
    assert len(translated(specs).cells) == 1


@pytest.mark.parametrize("specs", [{}, {"hw:numa_nodes": ""}, listed(("0-3", "1024")), {"hw:pmem": " ,"}])
def test_otherwise_there_are_no_cells_not_even_with_maps(specs):
    assert translated(specs).cells is None


@pytest.mark.parametrize("count", ["02", "0", "-1", "x", " 2", "2.0", "9" * 5000])
def test_the_node_count_is_plain_decimal_text(count):
    assert problem_codes({"hw:numa_nodes": count}) == ["numa_nodes_invalid"]
    assert problem_codes({}, {"hw_numa_nodes": count}) == ["numa_nodes_invalid"]


def test_an_image_may_set_what_the_flavor_leaves_open():
    image = {
        "hw_numa_nodes": "2",
        "hw_numa_cpus.0": "0",
        "hw_numa_cpus.1": "1-3",
        "hw_numa_mem.0": "24",
        "hw_numa_mem.1": "1000",
    }
    assert [cell.memory_mb for cell in translated({}, image).cells] == [24, 1000]


@pytest.mark.parametrize(
    "image", [{"hw_numa_nodes": "2"}, {"hw_numa_cpus.0": "0-1"}, {"hw_numa_mem.0": "512"}]
)
def test_an_image_may_not_set_what_the_flavor_sets(image):
    specs = {**TWO_NODES, **listed(("0-1", "512"), ("2-3", "512"))}
    assert problem_codes(specs, image) == ["numa_image_forbidden"]


def test_an_even_split_needs_cpus_and_memory_that_divide():
    assert [cell.cpuset for cell in translated(TWO_NODES).cells] == [(0, 1), (2, 3)]
    assert problem_codes({"hw:numa_nodes": "3"}) == ["numa_asymmetric"]
    assert problem_codes(TWO_NODES, memory_mb=1023) == ["numa_asymmetric"]
    assert problem_codes({"hw:numa_nodes": "1000000000000"}) == ["numa_asymmetric"]


@pytest.mark.parametrize(
    "layout",
    [
        {"hw:numa_cpus.0": "0-1", "hw:numa_cpus.1": "2-3"},
        listed(("0-3", "1024")),
        listed(("0", "512"), ("1", "512"), ("2-3", "0")),
        {**listed(("0-1", "512"), ("2-3", "512")), "hw:numa_mem.1": ""},
    ],
)
def test_maps_have_to_be_complete(layout):
    assert problem_codes({**TWO_NODES, **layout}) == ["numa_incomplete"]


def test_a_list_ends_at_its_first_gap_and_after_128_cells():
    layout = listed(("0-1", "512"), ("2-3", "512"))
    gapped = {**TWO_NODES, **layout, "hw:numa_cpus.3": "x", "hw:numa_mem.3": "x"}
    assert problem_codes(gapped) == []
    many = {"hw:numa_nodes": "129", **listed(*((str(cpu), "1") for cpu in range(129)))}
    assert problem_codes(many, vcpus=129, memory_mb=129) == ["numa_incomplete"]


@pytest.mark.parametrize(
    ("layout", "codes"),
    [
        ((("0-3", "512"), ("4", "512")), ["numa_cpu_out_of_range"]),
        ((("0-3", "512"), ("3", "512")), ["numa_cpu_duplicate"]),
        ((("3,4", "512"), ("0-3", "512")), ["numa_cpu_out_of_range", "numa_cpu_duplicate"]),
        ((("0-3", "512"), ("3-4", "512")), ["numa_cpu_duplicate", "numa_cpu_out_of_range"]),
        ((("0-1", "512"), ("3", "512")), ["numa_cpu_unassigned"]),
        ((("0-1", "512"), ("2-3", "513")), ["numa_memory_mismatch"]),
        ((("0-1", "1025"), ("2-3", "-1")), ["numa_memory_mismatch"]),
        ((("0-1", "x"), ("2-9", "1")), ["numa_mem_invalid", "numa_cpu_out_of_range"]),
        ((("0-1", "1"), ("y", "1")), ["cpuset_invalid", "numa_memory_mismatch"]),
        (
            (("0-999999999", "512"), ("0-999999999", "512")),
            ["numa_cpu_out_of_range", "numa_cpu_duplicate", "numa_cpu_out_of_range"],
        ),
    ],
)
def test_a_manual_layout_is_checked_cpu_by_cpu_and_then_for_its_sums(layout, codes):
    assert problem_codes({**TWO_NODES, **listed(*layout)}) == codes


def test_a_mask_is_cut_along_the_cells():
    specs = {
        "hw:cpu_policy": "mixed",
        "hw:cpu_dedicated_mask": "2,7",
        **TWO_NODES,
        **listed(("0-2", "1024"), ("3-7", "2048")),
    }
    translation = translated(specs, vcpus=8, memory_mb=3072)
    assert drawn(translation) == ["VVP", "VVVVP"]
    assert translation.dedicated_cpus == "2,7"


def test_the_isolated_emulator_is_in_no_cell():
    specs = {"resources:VCPU": "3", "resources:PCPU": "2", "hw:emulator_threads_policy": "isolate"}
    assert drawn(translated(specs)) == ["VVVP"]


@pytest.mark.parametrize(
    "size", ["small", "large", "any", "2048", "2048KB", "2MB", "1GB", "2MiB", "0.5GB", "4b"]
)
def test_a_page_size_is_a_word_a_number_or_a_number_with_a_unit(size):
    assert problem_codes({"hw:mem_page_size": size}) == []
    assert problem_codes({"hw:mem_page_size": "any"}, {"hw_mem_page_size": size}) == []


@pytest.mark.parametrize("size", ["2M", "0", "-1", "0MB", "huge", "2kB", "2 MB", ".", "GB"])
def test_other_page_sizes_are_invalid(size):
    assert problem_codes({"hw:mem_page_size": size}) == ["page_size_invalid"]
    assert problem_codes({"hw:mem_page_size": "large"}, {"hw_mem_page_size": size}) == ["page_size_invalid"]


@pytest.mark.parametrize("specs", [{}, {"hw:mem_page_size": "small"}, {"hw:mem_page_size": "2048"}])
def test_an_image_page_size_needs_a_flavor_that_leaves_it_open(specs):
    assert problem_codes(specs, {"hw_mem_page_size": "2048"}) == ["page_size_forbidden"]
