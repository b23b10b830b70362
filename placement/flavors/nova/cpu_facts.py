"""The statements of flavor and image about CPUs: policies and masks, each checked on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.flavors.nova.agreed_values import PolicyTable
from placement.flavors.nova.cpuset import CpusetTextError, CpuSpec, parse_cpuset
from placement.flavors.nova.extra_specs import PCPU, VCPU, ExplicitRequests
from placement.flavors.nova.flavor import Flavor, ImageProperties, given, is_true
from placement.flavors.nova.flavor_groups import FlavorGroup, FlavorGroups
from placement.flavors.nova.problems import REFUSED, Problems, shown

DEDICATED = "dedicated"
SHARED = "shared"
MIXED = "mixed"
CPU_POLICIES = (DEDICATED, SHARED, MIXED)
PINNED = (DEDICATED, MIXED)
CPU_POLICY_KEY = "hw:cpu_policy"
CPU_POLICY_IMAGE_KEY = "hw_cpu_policy"
CPU_POLICY = PolicyTable(
    CPU_POLICY_KEY, CPU_POLICY_IMAGE_KEY, CPU_POLICIES, DEDICATED, "cpu_policy_invalid", "cpu_policy_conflict"
)
"""A dedicated flavor rules over every image; any other policy goes with no image that says another.

Source: nova-flavors.md, "CPU policy table".
"""
ISOLATE = "isolate"
SHARE = "share"
EMULATOR_POLICIES = (ISOLATE, SHARE)
EMULATOR_KEY = "hw:emulator_threads_policy"
PREFER = "prefer"
REQUIRE = "require"
THREAD_POLICIES = (PREFER, ISOLATE, REQUIRE)
THREAD_POLICY_KEY = "hw:cpu_thread_policy"
THREAD_POLICY_IMAGE_KEY = "hw_cpu_thread_policy"
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
THREAD_POLICY = PolicyTable(
    THREAD_POLICY_KEY,
    THREAD_POLICY_IMAGE_KEY,
    THREAD_POLICIES,
    PREFER,
    "cpu_thread_policy_invalid",
    "cpu_thread_policy_conflict",
)
"""A flavor that says prefer silently rules over the image (nova-flavors.md, "Thread policy")."""
DEDICATED_KEY = "hw:cpu_dedicated_mask"
REALTIME_KEY = "hw:cpu_realtime"
REALTIME_MASK_KEY = "hw:cpu_realtime_mask"
IMAGE_REALTIME_MASK_KEY = "hw_cpu_realtime_mask"


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The statements about CPUs; each is None if not made, REFUSED (a mask: empty) if made wrongly.

    `key_*` come from the policy keys, `written_threads` from the hyperthreading trait. The two amounts are
    the sums of resources:VCPU and resources:PCPU over all groups. `names_realtime_mask`: a realtime mask is
    given, whether `hw:cpu_realtime` is on or absent.
    """

    vcpus: int
    key_policy: str | None
    key_threads: str | None
    written_threads: str | None
    emulator: str | None
    realtime: frozenset[int] | None
    mask: frozenset[int] | None
    names_realtime_mask: bool
    shared_amount: int
    dedicated_amount: int

    @property
    def emulator_cpus(self) -> int:
        """Return the CPUs asked for on top of the guest's, for the emulator threads: 0 or 1."""
        return int(self.emulator == ISOLATE)

    @property
    def threads(self) -> str | None:
        """Return the thread policy, of the hyperthreading trait or else of the keys."""
        return self.written_threads or self.key_threads


def read_cpu_facts(
    flavor: Flavor,
    image: ImageProperties,
    explicit: ExplicitRequests,
    image_group: FlavorGroup,
    problems: Problems,
) -> CpuFacts:
    """Read and check every statement about CPUs.

    Source: nova-flavors.md, "Order of checks and error codes", "Realtime mask".
    """
    # The order of the calls is the order in which problems are reported.
    specs = flavor.extra_specs
    realtime = realtime_mask(specs, image, flavor.vcpus, problems)
    key_policy = CPU_POLICY.settle(given(specs, CPU_POLICY_KEY), given(image, CPU_POLICY_IMAGE_KEY), problems)
    key_threads = THREAD_POLICY.settle(
        given(specs, THREAD_POLICY_KEY), given(image, THREAD_POLICY_IMAGE_KEY), problems
    )
    mask = dedicated_mask(specs, flavor.vcpus, problems)
    # Without `hw:cpu_realtime` the mask has no effect, but it is a second source of dedicated CPUs.
    realtime_text = given(image, IMAGE_REALTIME_MASK_KEY) or given(specs, REALTIME_MASK_KEY)
    switch = given(specs, REALTIME_KEY)
    return CpuFacts(
        vcpus=flavor.vcpus,
        key_policy=key_policy,
        key_threads=key_threads,
        written_threads=written_thread_policy(explicit.groups, image_group),
        emulator=emulator_policy(specs, problems),
        realtime=realtime,
        mask=mask,
        names_realtime_mask=realtime_text is not None and (switch is None or is_true(switch)),
        shared_amount=explicit.total(VCPU),
        dedicated_amount=explicit.total(PCPU),
    )


def emulator_policy(extra_specs: Mapping[str, str], problems: Problems) -> str | None:
    """Return `isolate`, `share`, None if not set, or REFUSED after `emulator_policy_invalid`.

    Source: nova-flavors.md, "Emulator threads".
    """
    policy = given(extra_specs, EMULATOR_KEY)
    if policy is None or policy in EMULATOR_POLICIES:
        return policy
    problems.add(
        "emulator_policy_invalid",
        EMULATOR_KEY,
        f"{shown(policy)} is not one of {', '.join(EMULATOR_POLICIES)}",
    )
    return REFUSED


def written_thread_policy(groups: FlavorGroups, image_group: FlavorGroup) -> str | None:
    """Return the policy of the hyperthreading trait: isolate if forbidden, require if required, else None.

    The flavor's groups are asked first, in the order of their suffixes; the image only if none of them has
    it. Source: nova-flavors.md, "Hyperthreading trait".
    """
    for group in (*(groups[suffix] for suffix in sorted(groups)), image_group):
        if HYPERTHREADING in group.forbidden:
            return ISOLATE
        if HYPERTHREADING in group.required:
            return REQUIRE
    return None


def thread_policy_traits(policy: str | None) -> FlavorGroup:
    """Return the traits a policy key asks for: isolate forbids hyperthreading, require requires it."""
    return FlavorGroup(
        required=frozenset((HYPERTHREADING,) if policy == REQUIRE else ()),
        forbidden=frozenset((HYPERTHREADING,) if policy == ISOLATE else ()),
    )


def dedicated_mask(extra_specs: Mapping[str, str], vcpus: int, problems: Problems) -> frozenset[int] | None:
    """Return the guest CPU ids of the dedicated mask; it must leave some in, some out, none beyond the guest.

    None stands for "no mask", and an empty set for a mask that was refused: others always have CPUs.
    Adds `cpuset_invalid` or `dedicated_mask_invalid`. Source: nova-flavors.md, "Dedicated mask".
    """
    text = given(extra_specs, DEDICATED_KEY)
    if text is None:
        return None
    cpus = _parse_mask(DEDICATED_KEY, text, vcpus, problems)
    if cpus is None:
        return frozenset()
    if not cpus:
        fault = "no guest CPU is left dedicated"
    elif cpus.highest >= vcpus:
        fault = f"guest CPU {cpus.highest} is above {vcpus - 1}"
    elif cpus.ranges == ((0, vcpus - 1),):
        fault = "no guest CPU is left shared"
    else:
        return frozenset(cpus)
    problems.add("dedicated_mask_invalid", DEDICATED_KEY, fault)
    return frozenset()


def realtime_mask(
    extra_specs: Mapping[str, str], image: ImageProperties, vcpus: int, problems: Problems
) -> frozenset[int] | None:
    """Return the realtime guest CPU ids, or None if `hw:cpu_realtime` is off; the image's mask comes first.

    The set is empty for a mask that was refused.
    Adds `cpuset_invalid`, `realtime_mask_invalid` or `emulator_policy_invalid`.
    Source: nova-flavors.md, "Realtime mask".
    """
    if not is_true(extra_specs.get(REALTIME_KEY, "")):
        return None
    key, text = IMAGE_REALTIME_MASK_KEY, given(image, IMAGE_REALTIME_MASK_KEY)
    if text is None:
        key, text = REALTIME_MASK_KEY, given(extra_specs, REALTIME_MASK_KEY)
    all_cpus = CpuSpec(((0, vcpus - 1),))
    cpus = all_cpus if text is None else _parse_mask(key, text, vcpus, problems)
    if cpus is None:
        return frozenset()
    if not cpus:
        problems.add("realtime_mask_invalid", key, "no guest CPU is left realtime")
    has_emulator_policy = emulator_policy(extra_specs, problems) is not None
    if cpus == all_cpus and not has_emulator_policy:
        # The emulator has to run somewhere: on a CPU that is not realtime, or where an emulator policy says.
        fault = "every guest CPU is realtime and hw:emulator_threads_policy is not set"
    elif cpus.highest >= vcpus:
        fault = f"guest CPU {cpus.highest} is above {vcpus - 1}"
    else:
        return frozenset(cpus)
    problems.add("realtime_mask_invalid", key, fault)
    return frozenset()


def _parse_mask(key: str, text: str, vcpus: int, problems: Problems) -> CpuSpec | None:
    trimmed = text.strip()
    if trimmed.startswith("^"):
        trimmed = f"0-{vcpus - 1},{trimmed}"
    try:
        return parse_cpuset(trimmed)
    except CpusetTextError as error:
        problems.add("cpuset_invalid", key, str(error))
        return None
