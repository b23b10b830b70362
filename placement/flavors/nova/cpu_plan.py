"""The CPUs of a guest: which are shared, which dedicated, and how flavor and image say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from placement.flavors.nova.extra_specs import PCPU, VCPU, ExplicitRequests, FlavorGroup, Groups, merged
from placement.flavors.nova.flavor import (
    REFUSED,
    Flavor,
    ImageProperties,
    PolicyTable,
    Problems,
    given,
    is_true,
    shown,
)

# CPU set text such as `0-3,^2,7`, and the set of guest CPU ids it means.
#
# A set is kept as ranges, because a text of ten characters can name a billion CPUs: it is compared with the
# guest's CPU count before anything is expanded.


Range = tuple[int, int]

_PIECE = re.compile(r"(?P<out>\^?)\s*(?P<first>[0-9]{1,18})(?:\s*-\s*(?P<last>[0-9]{1,18}))?")


class CpusetTextError(ValueError):
    """The text is no CPU set; the message quotes the piece at fault."""


@dataclass(frozen=True, slots=True)
class CpuSet:
    """CPU ids as (first, last) pairs: ascending, disjoint and never adjacent."""

    ranges: tuple[Range, ...] = ()

    @property
    def highest(self) -> int:
        """Return the highest CPU id, or -1 for the empty set."""
        return self.ranges[-1][1] if self.ranges else -1

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    def __and__(self, others: CpuSet) -> CpuSet:
        return self.without(self.without(others))

    def without(self, others: CpuSet) -> CpuSet:
        """Return the CPU ids of this set that are not in the other one."""
        return CpuSet(tuple(_difference(self.ranges, others.ranges)))


def parse_cpuset(text: str) -> CpuSet:
    """Return all CPUs the text takes minus all it takes out with `^`, whatever the order of its pieces.

    Raises CpusetTextError. Source: nova-flavors.md, "CPU set text".
    """
    taken: list[Range] = []
    out: list[Range] = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PIECE.fullmatch(piece)
        if match is None:
            raise CpusetTextError(f"{piece[:40]!r} is neither a CPU number nor a range of them")
        first = int(match["first"])
        last = int(match["last"] or first)
        if last < first:
            raise CpusetTextError(f"{piece[:40]!r} goes down")
        (out if match["out"] else taken).append((first, last))
    return CpuSet(tuple(_merged(taken))).without(CpuSet(tuple(_merged(out))))


def _merged(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _difference(taken: Iterable[Range], holes: tuple[Range, ...]) -> Iterator[Range]:
    start = 0
    for first, last in taken:
        while start < len(holes) and holes[start][1] < first:
            start += 1
        # The last hole may reach into the next range, so `start` stays on it.
        hole = start
        while hole < len(holes) and holes[hole][0] <= last:
            if first < holes[hole][0]:
                yield first, holes[hole][0] - 1
            first = max(first, holes[hole][1] + 1)
            hole += 1
        start = max(start, hole - 1)
        if first <= last:
            yield first, last


# The plan of the guest's CPUs: policy, dedicated CPUs, the emulator's CPU and the thread policy.
#
# CpuFacts           masks, policy keys, emulator policy and amounts, each checked on its own
#   -> policy        the keys, else what the amounts of resources:VCPU and resources:PCPU stand for
#   -> checks        what goes with the settled policy and what does not
#   -> CpuPlan       what the base group asks for, and which guest CPUs are dedicated


# `hw:cpu_policy` of the flavor against `hw_cpu_policy` of the image.


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


# `hw:emulator_threads_policy`: whether the emulator gets a CPU of its own. Flavor only.


ISOLATE = "isolate"
SHARE = "share"
EMULATOR_POLICIES = (ISOLATE, SHARE)
KEY = "hw:emulator_threads_policy"


def emulator_policy(extra_specs: Mapping[str, str], problems: Problems) -> str | None:
    """Return `isolate`, `share`, None if not set, or REFUSED after `emulator_policy_invalid`.

    Source: nova-flavors.md, "Emulator threads".
    """
    policy = given(extra_specs, KEY)
    if policy is None or policy in EMULATOR_POLICIES:
        return policy
    problems.add(
        "emulator_policy_invalid", f"{KEY}: {shown(policy)} is none of {', '.join(EMULATOR_POLICIES)}"
    )
    return REFUSED


# CPU thread policy: the two keys, and the hyperthreading trait that says the same in another way.


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


def written_thread_policy(groups: Groups, image: FlavorGroup) -> str | None:
    """Return what the hyperthreading trait means: forbidden is isolate, required is require, absent is None.

    The flavor's groups are asked first, in the order of their suffixes; the image only if none of them has
    it. Source: nova-flavors.md, "Hyperthreading trait".
    """
    for group in (*(groups[suffix] for suffix in sorted(groups)), image):
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


# The two masks that say which guest CPUs are dedicated: the dedicated mask and the realtime mask.
#
# Both functions return None for "no mask" and an empty set for "a mask that was refused": a mask that is
# accepted always has CPUs.


DEDICATED_KEY = "hw:cpu_dedicated_mask"
REALTIME_KEY = "hw:cpu_realtime"
REALTIME_MASK_KEY = "hw:cpu_realtime_mask"
IMAGE_REALTIME_MASK_KEY = "hw_cpu_realtime_mask"


def dedicated_mask(extra_specs: Mapping[str, str], vcpus: int, problems: Problems) -> frozenset[int] | None:
    """Return the guest CPU ids of the dedicated mask; it must leave some in, some out, none beyond the guest.

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
    problems.add("dedicated_mask_invalid", f"{DEDICATED_KEY}: {fault}")
    return frozenset()


def realtime_mask(
    extra_specs: Mapping[str, str], image: ImageProperties, vcpus: int, problems: Problems
) -> frozenset[int] | None:
    """Return the realtime guest CPU ids, or None if `hw:cpu_realtime` is off; the image's mask comes first.

    Adds `cpuset_invalid`, `realtime_mask_invalid` or `emulator_policy_invalid`.
    Source: nova-flavors.md, "Realtime mask".
    """
    if not is_true(extra_specs.get(REALTIME_KEY, "")):
        return None
    key, text = IMAGE_REALTIME_MASK_KEY, given(image, IMAGE_REALTIME_MASK_KEY)
    if text is None:
        key, text = REALTIME_MASK_KEY, given(extra_specs, REALTIME_MASK_KEY)
    every = CpuSet(((0, vcpus - 1),))
    cpus = every if text is None else _parse_mask(key, text, vcpus, problems)
    if cpus is None:
        return frozenset()
    if not cpus:
        problems.add("realtime_mask_invalid", f"{key}: no guest CPU is left realtime")
    has_emulator_policy = emulator_policy(extra_specs, problems) is not None
    if cpus == every and not has_emulator_policy:
        # The emulator has to run somewhere: on a CPU that is not realtime, or where an emulator policy says.
        fault = "every guest CPU is realtime and hw:emulator_threads_policy is not set"
    elif cpus.highest >= vcpus:
        fault = f"guest CPU {cpus.highest} is above {vcpus - 1}"
    else:
        return frozenset(cpus)
    problems.add("realtime_mask_invalid", f"{key}: {fault}")
    return frozenset()


def _parse_mask(key: str, text: str, vcpus: int, problems: Problems) -> CpuSet | None:
    trimmed = text.strip()
    if trimmed.startswith("^"):
        trimmed = f"0-{vcpus - 1},{trimmed}"
    try:
        return parse_cpuset(trimmed)
    except CpusetTextError as error:
        problems.add("cpuset_invalid", f"{key}: {error}")
        return None


# What flavor and image say about CPUs, each statement checked on its own.


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
    image_traits: FlavorGroup,
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
        written_threads=written_thread_policy(explicit.groups, image_traits),
        emulator=emulator_policy(specs, problems),
        realtime=realtime,
        mask=mask,
        names_realtime_mask=realtime_text is not None and (switch is None or is_true(switch)),
        shared_amount=explicit.total(VCPU),
        dedicated_amount=explicit.total(PCPU),
    )


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The plan of the guest's CPUs; `request` is what it adds to the base group.

    `policy` is REFUSED when the two sides do not agree. `dedicated` holds guest CPU ids, None if only their
    number `dedicated_count` is known and they are dealt to the cells in turn. `emulator_cpus` is 0 or 1.
    `from_keys` says that the policy comes from hw:cpu_policy or hw_cpu_policy. With `settled` false a problem
    was found, and the amounts are only good enough to go on looking for more problems.
    """

    policy: str | None
    thread_policy: str | None
    from_keys: bool
    emulator_cpus: int
    dedicated: frozenset[int] | None
    dedicated_count: int
    request: FlavorGroup
    settled: bool


def plan_cpus(
    flavor: Flavor,
    image: ImageProperties,
    explicit: ExplicitRequests,
    image_traits: FlavorGroup,
    problems: Problems,
) -> CpuPlan:
    """Settle everything about CPUs except their cells; adds a problem for each rule that does not hold.

    Source: nova-flavors.md, "CPU policy", "Masks", "Threads", "Order of checks and error codes".
    """
    found_before = len(problems)
    facts = read_cpu_facts(flavor, image, explicit, image_traits, problems)
    policy = _settle_policy(facts, problems)
    if facts.key_threads is not None and facts.written_threads is not None:
        problems.add(
            "hyperthreading_conflict",
            f"trait:{HYPERTHREADING}: says the same as a CPU thread policy, use one of them",
        )
    _check_policy_fits(policy, facts, problems)
    settled = len(problems) == found_before
    dedicated: frozenset[int] | None = frozenset()
    if policy == DEDICATED:
        dedicated = frozenset(range(facts.vcpus))
    elif policy == MIXED:
        dedicated = None if facts.key_policy is None else facts.mask or facts.realtime or frozenset()
    count = facts.dedicated_amount - facts.emulator_cpus if dedicated is None else len(dedicated)
    # Explicit amounts stay where they were written; a policy key adds amounts to the base group.
    amounts = {}
    if facts.key_policy == DEDICATED:
        amounts = {PCPU: facts.vcpus + facts.emulator_cpus}
    elif facts.key_policy == MIXED:
        amounts = {VCPU: facts.vcpus - count, PCPU: count + facts.emulator_cpus}
    asked = merged((FlavorGroup(amounts), thread_policy_traits(facts.key_threads)))
    return CpuPlan(
        policy=policy,
        thread_policy=facts.threads,
        from_keys=facts.key_policy is not None,
        emulator_cpus=facts.emulator_cpus,
        dedicated=dedicated,
        dedicated_count=count,
        # An unsettled plan asks for some CPU, lest an empty group is reported on top.
        request=asked if settled else FlavorGroup({VCPU: facts.vcpus}),
        settled=settled,
    )


def _settle_policy(facts: CpuFacts, problems: Problems) -> str | None:
    """Return the policy of the keys, else of the explicit amounts (nova-flavors.md, "Explicit amounts")."""
    shared, dedicated = facts.shared_amount, facts.dedicated_amount
    if facts.key_policy is not None:
        if facts.key_policy != REFUSED and shared + dedicated > 0:
            problems.add(
                "cpu_resources_conflict",
                "resources:VCPU, resources:PCPU: do not go with hw:cpu_policy or hw_cpu_policy",
            )
        return facts.key_policy
    if dedicated == 0:
        return SHARED if shared else None
    # With a refused emulator policy it is unknown how many CPUs the amounts should add up to.
    if facts.emulator != REFUSED:
        asked, needed = shared + dedicated, facts.vcpus + facts.emulator_cpus
        if asked != needed:
            names = "resources:VCPU and resources:PCPU" if shared else "resources:PCPU"
            problems.add(
                "cpu_resources_mismatch",
                f"{names}: {asked} CPUs where the guest and its emulator need {needed}",
            )
        if shared and dedicated - facts.emulator_cpus < 1:
            problems.add(
                "cpu_resources_mismatch",
                "resources:PCPU: the emulator takes the only one, none is left for the guest",
            )
    if shared and (facts.mask is not None or facts.realtime is not None):
        key = DEDICATED_KEY if facts.mask is not None else REALTIME_KEY
        problems.add(
            "cpu_resources_conflict",
            f"{key}: resources:VCPU and resources:PCPU already say what is dedicated",
        )
    return MIXED if shared else DEDICATED


def _check_policy_fits(policy: str | None, facts: CpuFacts, problems: Problems) -> None:
    if policy in (None, SHARED):
        needs = "needs the CPU policy dedicated or mixed"
        if facts.threads not in (None, REFUSED):
            keys = f"{THREAD_POLICY_KEY}, {THREAD_POLICY_IMAGE_KEY}"
            name = f"trait:{HYPERTHREADING}" if facts.written_threads else keys
            problems.add("cpu_thread_policy_needs_pinning", f"{name}: {facts.threads} {needs}")
        if facts.emulator == ISOLATE:
            problems.add("emulator_policy_needs_pinning", f"{KEY}: isolate {needs}")
        if facts.mask is not None:
            problems.add("dedicated_mask_needs_mixed", f"{DEDICATED_KEY}: needs the CPU policy mixed")
        if facts.realtime is not None:
            problems.add("realtime_needs_pinning", f"{REALTIME_KEY}: {needs}")
    elif policy == DEDICATED and facts.mask is not None:
        problems.add("dedicated_mask_needs_mixed", f"{DEDICATED_KEY}: needs the CPU policy mixed")
    elif policy == MIXED and facts.key_policy == MIXED and (facts.mask is None) == (facts.realtime is None):
        problems.add(
            "mixed_needs_one_mask",
            f"hw:cpu_policy: mixed needs {DEDICATED_KEY} or {REALTIME_KEY}, and not both",
        )
    elif policy == MIXED and facts.mask is not None and facts.names_realtime_mask:
        problems.add(
            "mixed_needs_one_mask",
            f"{REALTIME_MASK_KEY}: does not go with {DEDICATED_KEY}, use one of them",
        )
