import pytest

from placement.engine.domain.errors import BadRequest
from placement.flavors.nova import FlavorRefused
from tests.unit.flavors.nova.samples import problem_codes, translated

EVERYTHING_WRONG = {
    "hw:mem_encryption": "yes",
    "hw:cpu_realtime": "yes",
    "hw:cpu_realtime_mask": "9",
    "hw:cpu_policy": "foo",
    "hw:cpu_thread_policy": "bar",
    "hw:cpu_dedicated_mask": "x",
    "hw:emulator_threads_policy": "baz",
    "hw:numa_nodes": "0",
    "hw:mem_page_size": "2M",
    "hw:numa_cpus.0": "y",
    "hw:numa_mem.0": "z",
    "hw:tpm_version": "3",
    "hw:pci_numa_affinity_policy": "z",
    "trait:CUSTOM_A": "forbidden",
    "trait1:CUSTOM_B": "required",
    "resources2:VGPU": "1",
}


def test_all_problems_are_reported_in_the_order_of_the_checks():
    assert problem_codes(EVERYTHING_WRONG, {"trait:CUSTOM_A": "required"}) == [
        "flavor_image_conflict",
        "emulator_policy_invalid",
        "realtime_mask_invalid",
        "cpu_policy_invalid",
        "cpu_thread_policy_invalid",
        "cpuset_invalid",
        "numa_nodes_invalid",
        "page_size_invalid",
        "cpuset_invalid",
        "numa_mem_invalid",
        "value_invalid",
        "value_invalid",
        "trait_conflict",
        "traits_without_resources",
        "group_policy_required",
    ]


def test_every_message_names_the_extra_spec_or_property_at_fault():
    image = {"trait:CUSTOM_A": "required", "hw_cpu_policy": "foo"}
    with pytest.raises(FlavorRefused) as refused:
        translated(EVERYTHING_WRONG, image)
    named = {*EVERYTHING_WRONG, *image, "hw_firmware_type", "group_policy"}
    assert all(problem.message.split(": ")[0] in named for problem in refused.value.problems)


def test_a_refusal_is_a_bad_request_whose_text_tells_everything():
    with pytest.raises(BadRequest) as refused:
        translated({"hw:cpu_policy": "foo", "hw:numa_nodes": "0"})
    assert "hw:cpu_policy: 'foo'" in str(refused.value)
    assert "hw:numa_nodes: '0'" in str(refused.value)


def test_unpinned_flavors_learn_of_everything_that_needs_pinning():
    specs = {
        "hw:cpu_thread_policy": "prefer",
        "hw:emulator_threads_policy": "isolate",
        "hw:cpu_dedicated_mask": "0",
        "hw:cpu_realtime": "yes",
        "hw:cpu_realtime_mask": "^0",
    }
    assert problem_codes(specs) == [
        "cpu_thread_policy_needs_pinning",
        "emulator_policy_needs_pinning",
        "dedicated_mask_needs_mixed",
        "realtime_needs_pinning",
    ]


def test_a_huge_value_makes_no_huge_message():
    with pytest.raises(FlavorRefused) as refused:
        translated({"hw:cpu_policy": "x" * 100_000})
    assert len(str(refused.value)) < 300


def test_a_huge_name_makes_no_huge_message():
    with pytest.raises(FlavorRefused) as refused:
        translated({f"hw:{'x' * 100_000}": "1"}, options={"strict": True})
    assert str(refused.value).endswith("x...")
    assert len(str(refused.value)) == 300


def test_a_refused_policy_does_not_make_the_base_group_look_empty():
    nothing = {
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0",
        "trait:A": "required",
    }
    specs = {**nothing, "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"}
    assert problem_codes(specs) == ["dedicated_mask_invalid"]
