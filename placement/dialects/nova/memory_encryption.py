"""Memory encryption: `hw:mem_encryption` and its model, and what they need of the image."""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.nova.agreement import agreed_value
from placement.dialects.nova.errors import Problems, shown
from placement.dialects.nova.flavor import (
    FIRMWARE_KEY,
    STATELESS_FIRMWARE_KEY,
    ImageProperties,
    given,
    is_stateless,
    is_true,
    is_uefi,
)
from placement.dialects.nova.groups import FlavorGroup
from placement.dialects.nova.resource_classes import MEM_ENCRYPTION_CONTEXT

FLAVOR_KEY = "hw:mem_encryption"
IMAGE_KEY = "hw_mem_encryption"
MODEL_KEYS = ("hw:mem_encryption_model", "hw_mem_encryption_model")
MACHINE_TYPE_KEY = "hw_machine_type"

_DEFAULT_MODEL = "amd-sev"
_STATELESS_MODEL = "amd-sev-snp"
MODEL_TRAITS = {
    _DEFAULT_MODEL: "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    _STATELESS_MODEL: "HW_CPU_X86_AMD_SEV_SNP",
}


def memory_encryption(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> FlavorGroup:
    """One encryption context and the trait of the model if either side asks for it, else nothing.

    Adds `flavor_image_conflict`, `value_invalid`, `machine_type_invalid` or `stateless_firmware_required`.
    Source: nova-flavors.md, "Optional additions".
    """
    ours = is_true(extra_specs[FLAVOR_KEY]) if FLAVOR_KEY in extra_specs else None
    theirs = is_true(image[IMAGE_KEY]) if IMAGE_KEY in image else None
    if not ours and not theirs:
        return FlavorGroup()
    if ours is not None and theirs is not None and ours != theirs:
        problems.add(
            "flavor_image_conflict",
            f"{FLAVOR_KEY}: one of flavor and image ({IMAGE_KEY}) asks for it, the other not",
        )
        return FlavorGroup()
    asking = FLAVOR_KEY if ours else IMAGE_KEY
    model = agreed_value(extra_specs, image, MODEL_KEYS, tuple(MODEL_TRAITS), problems) or _DEFAULT_MODEL
    _check_image(asking, model, image, problems)
    traits = frozenset((MODEL_TRAITS[model],)) if model in MODEL_TRAITS else frozenset[str]()
    return FlavorGroup({MEM_ENCRYPTION_CONTEXT: 1}, required=traits)


def _check_image(asking: str, model: str, image: ImageProperties, problems: Problems) -> None:
    if not is_uefi(image):
        problems.add("flavor_image_conflict", f"{FIRMWARE_KEY}: must be uefi for {asking}")
    machine_type = given(image, MACHINE_TYPE_KEY)
    if machine_type is not None and "q35" not in machine_type:
        problems.add(
            "machine_type_invalid", f"{MACHINE_TYPE_KEY}: {shown(machine_type)} is no q35, {asking} needs one"
        )
    if model == _STATELESS_MODEL and not is_stateless(image):
        problems.add("stateless_firmware_required", f"{STATELESS_FIRMWARE_KEY}: must be true for {model}")
