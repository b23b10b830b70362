import pytest

from placement.flavors.nova.translation import extra_spec_fault
from tests.unit.flavors.nova.samples import problem_codes

VALID = [
    ("group_policy", "none"),
    ("hw:cpu_policy", "mixed"),
    ("hw:cpu_thread_policy", "require"),
    ("hw:emulator_threads_policy", "share"),
    ("os:secure_boot", "disabled"),
    ("hw:pci_numa_affinity_policy", "legacy"),
    ("hw:tpm_model", "tpm-crb"),
    ("hw:tpm_version", "1.2"),
    ("hw:tpm_secret_security", "deployment"),
    ("hw:mem_encryption_model", "amd-sev-snp"),
    ("hw:viommu_model", "smmuv3"),
    ("hw:watchdog_action", "poweroff"),
    ("hw:sound_model", "ich9"),
    ("hw:usb_model", "qemu-xhci"),
    ("hw:ephemeral_encryption_format", "luksv2"),
    ("hw:cpu_realtime_mask", "^0,2-3,1"),
    ("hw:numa_cpus.12", "0-4,^2,6"),
    ("hw:numa_mem.0", "1"),
    ("hw:numa_nodes", "02"),
    ("hw:cpu_max_threads", "1"),
    ("hw:serial_port_count", "0"),
    ("hw:redirected_usb_ports", "15"),
    ("hw:virtio_packed_ring", "OFF"),
    ("hw:mem_page_size", "1GB"),
    ("hw:mem_page_size", "2048"),
    ("hw:mem_page_size", "2M"),
    ("hw:pmem", "4GB,SMALL_1"),
    ("hw:maxphysaddr_mode", "anything"),
    ("resources_a:CUSTOM_X", "0"),
    ("traits:CUSTOM_X", "forbidden"),
    ("quota:cpu_shares", "x"),
    ("no namespace", ""),
    (f"trait{'a' * 65}:x", "y"),
]
INVALID = [
    ("group_policy", "spread"),
    ("hw:cpu_policy", ""),
    ("os:secure_boot", "optional"),
    ("hw:tpm_secret_security", "none"),
    ("hw:cpu_dedicated_mask", ""),
    ("hw:cpu_dedicated_mask", "1,,2"),
    ("hw:cpu_dedicated_mask", "1,"),
    ("hw:cpu_dedicated_mask", "0-3-5"),
    ("hw:numa_cpus.0", "0, 1"),
    ("hw:numa_cpus", "0"),
    ("hw:numa_cpus.a", "0"),
    ("hw:numa_mem.0", "0"),
    ("hw:numa_nodes", "0"),
    ("hw:cpu_sockets", "x"),
    ("hw:serial_port_count", "-1"),
    ("hw:redirected_usb_ports", "16"),
    ("hw:boot_menu", "yah"),
    ("hw:cpu_realtime", "00"),
    ("hw:mem_page_size", "2kbits"),
    ("hw:pmem", "4 GB"),
    ("hw:pmem", ""),
    ("hw:foo", "bar"),
    ("os:monitors", "1"),
    ("hw:", "x"),
    ("resources:nope", "1"),
    ("resources:CUSTOM_foo", "1"),
    ("resources:VCPU", "-1"),
    ("resources1:", "1"),
    ("trait:CUSTOM_x", "required"),
    ("trait1:X", "preferred"),
    ("trait1:\n", "required"),
]


@pytest.mark.parametrize(("key", "text"), VALID)
def test_a_known_extra_spec_with_a_legal_value_passes(key, text):
    assert extra_spec_fault(key, text) is None


@pytest.mark.parametrize(("key", "text"), INVALID)
def test_a_bad_value_or_an_unknown_key_of_our_namespaces_does_not_pass(key, text):
    assert extra_spec_fault(key, text)


def test_strict_problems_come_before_all_others_and_name_every_extra_spec():
    specs = {"hw:foo": "1", "hw:cpu_policy": "shared", "hw:bar": "2"}
    codes = problem_codes(specs, {"hw_cpu_policy": "dedicated"}, {"strict": True})
    assert codes == ["extra_spec_invalid", "extra_spec_invalid", "cpu_policy_conflict"]
