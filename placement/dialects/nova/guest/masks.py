"""The two masks that say which guest CPUs are dedicated: the dedicated mask and the realtime mask.

Both functions answer None for "no mask" and an empty set for "there is one, but it was refused": a mask that
holds always has CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.flavor import ImageProperties, given, is_true
from placement.dialects.nova.guest.cpuset import CpuSet, CpusetTextError, parse_cpuset
from placement.dialects.nova.guest.emulator_threads import emulator_policy

DEDICATED_KEY = "hw:cpu_dedicated_mask"
REALTIME_KEY = "hw:cpu_realtime"
REALTIME_MASK_KEY = "hw:cpu_realtime_mask"
IMAGE_REALTIME_MASK_KEY = "hw_cpu_realtime_mask"


def dedicated_mask(extra_specs: Mapping[str, str], vcpus: int, problems: Problems) -> frozenset[int] | None:
    """The guest CPU ids of the dedicated mask; it has to leave some in, some out, and none beyond the guest.

    Adds `cpuset_invalid` or `dedicated_mask_invalid`. Source: nova-flavors.md, "Dedicated mask".
    """
    text = given(extra_specs, DEDICATED_KEY)
    if text is None:
        return None
    cpus = _parse_mask(DEDICATED_KEY, text, vcpus, problems)
    if cpus is None:
        return frozenset()
    fault = _dedicated_mask_fault(cpus, vcpus)
    if fault:
        problems.add("dedicated_mask_invalid", f"{DEDICATED_KEY}: {fault}")
        return frozenset()
    return frozenset(cpus)


def realtime_mask(
    extra_specs: Mapping[str, str], image: ImageProperties, vcpus: int, problems: Problems
) -> frozenset[int] | None:
    """The realtime guest CPU ids, None while `hw:cpu_realtime` is off; the image's mask comes first.

    Adds `cpuset_invalid`, `realtime_mask_invalid` or `emulator_policy_invalid`.
    Source: nova-flavors.md, "Realtime mask".
    """
    if not is_true(extra_specs.get(REALTIME_KEY, "")):
        return None
    key, cpus = _realtime_cpus(extra_specs, image, vcpus, problems)
    if cpus is None:
        return frozenset()
    fault = None
    if not cpus:
        problems.add("realtime_mask_invalid", f"{key}: no guest CPU is left realtime")
    has_emulator_policy = emulator_policy(extra_specs, problems) is not None
    if cpus.ranges == ((0, vcpus - 1),) and not has_emulator_policy:
        # The emulator has to run somewhere: on a CPU that is not realtime, or where an emulator policy says.
        fault = "every guest CPU is realtime and hw:emulator_threads_policy is not set"
    elif cpus.highest >= vcpus:
        fault = f"guest CPU {cpus.highest} is above {vcpus - 1}"
    if fault:
        problems.add("realtime_mask_invalid", f"{key}: {fault}")
        return frozenset()
    return frozenset(cpus)


def names_realtime_mask(extra_specs: Mapping[str, str], image: ImageProperties) -> bool:
    """Return whether flavor or image give a realtime mask and `hw:cpu_realtime` is not false.

    Without `hw:cpu_realtime` the mask has no effect, but it is a second source of dedicated CPUs.
    Source: nova-flavors.md, "Realtime mask".
    """
    masks = (given(image, IMAGE_REALTIME_MASK_KEY), given(extra_specs, REALTIME_MASK_KEY))
    switch = given(extra_specs, REALTIME_KEY)
    return any(mask is not None for mask in masks) and (switch is None or is_true(switch))


def _realtime_cpus(
    extra_specs: Mapping[str, str], image: ImageProperties, vcpus: int, problems: Problems
) -> tuple[str, CpuSet | None]:
    masks = ((IMAGE_REALTIME_MASK_KEY, image), (REALTIME_MASK_KEY, extra_specs))
    for key, texts in masks:
        text = given(texts, key)
        if text is not None:
            return key, _parse_mask(key, text, vcpus, problems)
    return REALTIME_MASK_KEY, CpuSet(((0, vcpus - 1),))


def _parse_mask(key: str, text: str, vcpus: int, problems: Problems) -> CpuSet | None:
    trimmed = text.strip()
    if trimmed.startswith("^"):
        trimmed = f"0-{vcpus - 1},{trimmed}"
    try:
        return parse_cpuset(trimmed)
    except CpusetTextError as error:
        problems.add("cpuset_invalid", f"{key}: {error}")
        return None


def _dedicated_mask_fault(cpus: CpuSet, vcpus: int) -> str | None:
    if not cpus:
        return "no guest CPU is left dedicated"
    if cpus.highest >= vcpus:
        return f"guest CPU {cpus.highest} is above {vcpus - 1}"
    if cpus.ranges == ((0, vcpus - 1),):
        return "no guest CPU is left shared"
    return None
