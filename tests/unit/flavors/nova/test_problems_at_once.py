import pytest

from placement.flavors.nova.problems import FlavorRefused
from tests.unit.flavors.nova.samples import translated

_WRONG = """
    hw:mem_encryption=yes hw:cpu_realtime=yes hw:cpu_realtime_mask=9 hw:cpu_policy=foo
    hw:cpu_thread_policy=bar hw:cpu_dedicated_mask=x hw:emulator_threads_policy=baz hw:numa_nodes=0
    hw:mem_page_size=2M hw:numa_cpus.0=y hw:numa_mem.0=z hw:tpm_version=3
    hw:pci_numa_affinity_policy=z trait:CUSTOM_A=forbidden trait1:CUSTOM_B=required
    resources2:VGPU=1
"""
EVERYTHING_WRONG = dict(entry.split("=") for entry in _WRONG.split())


def test_every_message_names_the_extra_spec_or_property_at_fault():
    image = {"trait:CUSTOM_A": "required", "hw_cpu_policy": "foo"}
    with pytest.raises(FlavorRefused) as refused:
        translated(EVERYTHING_WRONG, image)
    named = {*EVERYTHING_WRONG, *image, "hw_firmware_type", "group_policy"}
    assert all(finding.place.text in named for finding in refused.value.findings)


def test_huge_values_and_names_are_refused_with_messages_that_are_not():
    huge = "x" * 100_000
    for specs, longest in (
        ({"hw:cpu_policy": huge}, 299),
        ({f"hw:{huge}": "1"}, 300),
        ({"hw:numa_nodes": "9" * 5000}, 300),
        ({"resources:VGPU": "9" * 5000}, 300),
    ):
        with pytest.raises(FlavorRefused) as refused:
            translated(specs, options={"strict": True})
        assert len(str(refused.value)) <= longest
        assert ("x...:" in str(refused.value)) == (f"hw:{huge}" in specs)
