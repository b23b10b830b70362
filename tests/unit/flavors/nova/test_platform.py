import pytest

from tests.unit.flavors.nova.samples import problem_codes, translated

UEFI = {"hw_firmware_type": "uefi"}
SEV = {"hw:mem_encryption": "True"}


def base(specs, image=None):
    return translated(specs, image).groups[""]


@pytest.mark.parametrize(
    ("specs", "image", "traits"),
    [
        ({"hw:tpm_version": "1.2"}, {}, {"COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_TIS"}),
        (
            {"hw:tpm_version": "2.0"},
            {"hw_tpm_model": "tpm-crb"},
            {"COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_CRB"},
        ),
        ({"hw:tpm_model": "nonsense"}, {"hw_tpm_model": "tpm-crb"}, set()),
        ({"os:secure_boot": "required"}, {}, {"COMPUTE_SECURITY_UEFI_SECURE_BOOT"}),
        ({}, {"os_secure_boot": "optional"}, set()),
        ({"hw:pci_numa_affinity_policy": "socket"}, {}, {"COMPUTE_SOCKET_PCI_NUMA_AFFINITY"}),
        ({}, {"hw_pci_numa_affinity_policy": "legacy"}, set()),
        ({"hw:maxphysaddr_mode": "passthrough"}, {}, {"COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}),
        ({}, {"hw_maxphysaddr_mode": "emulate"}, {"COMPUTE_ADDRESS_SPACE_EMULATED"}),
        ({}, {**UEFI, "hw_firmware_stateless": "yes"}, {"COMPUTE_SECURITY_STATELESS_FIRMWARE"}),
        ({}, {"hw_firmware_stateless": "yes"}, set()),
        ({"hw:tpm_version": "", "os:secure_boot": ""}, {}, set()),
    ],
)
def test_platform_keys_require_traits_of_the_base_group(specs, image, traits):
    assert base(specs, image).required == traits


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({"hw:tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}),
        ({"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-tis"}, {"hw_tpm_model": "tpm-crb"}),
        ({"os:secure_boot": "required"}, {"os_secure_boot": "optional"}),
        ({"hw:pci_numa_affinity_policy": "socket"}, {"hw_pci_numa_affinity_policy": "legacy"}),
        ({"hw:maxphysaddr_mode": "emulate"}, {"hw_maxphysaddr_mode": "passthrough"}),
        (SEV, {**UEFI, "hw_mem_encryption": "no"}),
        ({"hw:mem_encryption": ""}, {**UEFI, "hw_mem_encryption": "yes"}),
        ({**SEV, "hw:mem_encryption_model": "amd-sev"}, {**UEFI, "hw_mem_encryption_model": "amd-sev-es"}),
        (SEV, {}),
        (SEV, {"hw_firmware_type": "bios"}),
    ],
)
def test_flavor_and_image_have_to_agree(specs, image):
    assert problem_codes(specs, image) == ["flavor_image_conflict"]


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({"hw:tpm_version": "1.3"}, {}),
        ({"hw:tpm_version": "2.0"}, {"hw_tpm_model": "tpm"}),
        ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}),
        ({"os:secure_boot": "zz"}, {}),
        ({"hw:pci_numa_affinity_policy": "zz"}, {}),
        ({}, {"hw_maxphysaddr_mode": "zz"}),
        ({**SEV, "hw:mem_encryption_model": "intel"}, UEFI),
    ],
)
def test_a_value_outside_the_list_is_invalid(specs, image):
    assert problem_codes(specs, image) == ["value_invalid"]


@pytest.mark.parametrize(
    ("model", "trait"),
    [
        ("", "HW_CPU_X86_AMD_SEV"),
        ("amd-sev", "HW_CPU_X86_AMD_SEV"),
        ("amd-sev-es", "HW_CPU_X86_AMD_SEV_ES"),
        ("amd-sev-snp", "HW_CPU_X86_AMD_SEV_SNP"),
    ],
)
def test_memory_encryption_asks_for_a_context_and_the_trait_of_its_model(model, trait):
    image = {**UEFI, "hw_firmware_stateless": "1", "hw_machine_type": "pc-q35-8.2"}
    group = base({**SEV, "hw:mem_encryption_model": model}, image)
    assert group.resources["MEM_ENCRYPTION_CONTEXT"] == 1
    assert trait in group.required


def test_a_model_without_memory_encryption_does_nothing():
    specs = {"hw:mem_encryption": "no", "hw:mem_encryption_model": "nonsense"}
    assert base(specs, {"hw_mem_encryption": "0"}).traits == ()


def test_memory_encryption_needs_a_q35_machine_and_snp_stateless_firmware():
    snp = {**SEV, "hw:mem_encryption_model": "amd-sev-snp"}
    assert problem_codes(SEV, {**UEFI, "hw_machine_type": "pc"}) == ["machine_type_invalid"]
    assert problem_codes(snp, UEFI) == ["stateless_firmware_required"]
    assert problem_codes(snp, {"hw_machine_type": "pc"}) == [
        "flavor_image_conflict",
        "machine_type_invalid",
        "stateless_firmware_required",
    ]


def test_persistent_memory_is_counted_by_label():
    resources = base({"hw:pmem": "4GB, 4GB,small-x,"}).resources
    assert resources["CUSTOM_PMEM_NAMESPACE_4GB"] == 2
    assert resources["CUSTOM_PMEM_NAMESPACE_SMALL_X"] == 1
