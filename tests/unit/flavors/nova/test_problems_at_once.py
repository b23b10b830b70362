import pytest

from placement.flavors.nova import FlavorRefused
from tests.unit.flavors.nova.samples import translated

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


def test_every_message_names_the_extra_spec_or_property_at_fault():
    image = {"trait:CUSTOM_A": "required", "hw_cpu_policy": "foo"}
    with pytest.raises(FlavorRefused) as refused:
        translated(EVERYTHING_WRONG, image)
    named = {*EVERYTHING_WRONG, *image, "hw_firmware_type", "group_policy"}
    assert all(problem.message.split(": ")[0] in named for problem in refused.value.problems)


def test_a_huge_value_makes_no_huge_message():
    with pytest.raises(FlavorRefused) as refused:
        translated({"hw:cpu_policy": "x" * 100_000})
    assert len(str(refused.value)) < 300


def test_a_huge_name_makes_no_huge_message():
    with pytest.raises(FlavorRefused) as refused:
        translated({f"hw:{'x' * 100_000}": "1"}, options={"strict": True})
    assert str(refused.value).endswith("x...")
    assert len(str(refused.value)) == 300


@pytest.mark.parametrize("key", ["hw:numa_nodes", "resources:VGPU"])
def test_a_number_of_5000_digits_is_refused(key):
    with pytest.raises(FlavorRefused):
        translated({key: "9" * 5000}, options={"strict": True})
