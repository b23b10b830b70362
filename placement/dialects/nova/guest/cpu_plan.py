"""How the guest's CPUs are asked for: policy, dedicated CPUs, the emulator's CPU and the thread policy.

CpuFacts           masks, policy keys, emulator policy and amounts, each checked on its own
  -> policy        the keys, else what the amounts of resources:VCPU and resources:PCPU stand for
  -> checks        what goes with the settled policy and what does not
  -> CpuPlan       what the base group asks for, and which guest CPUs are dedicated
"""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.nova.errors import REFUSED, Problems
from placement.dialects.nova.extra_specs import ExplicitRequests
from placement.dialects.nova.flavor import Flavor, ImageProperties
from placement.dialects.nova.groups import FlavorGroup, merged
from placement.dialects.nova.guest import emulator_threads, masks, thread_policy
from placement.dialects.nova.guest.cpu_facts import CpuFacts, read_cpu_facts
from placement.dialects.nova.guest.cpu_policy import (
    DEDICATED,
    MIXED,
    PINNED,
    SHARED,
)
from placement.dialects.nova.resource_classes import PCPU, VCPU


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The outcome; `request` is what it adds to the base group.

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
            f"trait:{thread_policy.HYPERTHREADING}: says the same as a CPU thread policy, use one of them",
        )
    _check_policy_fits(policy, facts, problems)
    return _plan(policy, facts, settled=len(problems) == found_before)


def _settle_policy(facts: CpuFacts, problems: Problems) -> str | None:
    """The policy of the keys, else what the explicit amounts mean (nova-flavors.md, "Explicit amounts")."""
    if facts.key_policy is not None:
        if facts.key_policy != REFUSED and facts.shared_amount + facts.dedicated_amount > 0:
            problems.add(
                "cpu_resources_conflict",
                "resources:VCPU, resources:PCPU: do not go with hw:cpu_policy or hw_cpu_policy",
            )
        return facts.key_policy
    if facts.dedicated_amount == 0:
        return SHARED if facts.shared_amount else None
    _check_amounts(facts, problems)
    return MIXED if facts.shared_amount else DEDICATED


def _check_amounts(facts: CpuFacts, problems: Problems) -> None:
    asked = facts.shared_amount + facts.dedicated_amount
    needed = facts.vcpus + facts.emulator_cpus
    # With a refused emulator policy it is unknown how many CPUs the amounts should add up to.
    if facts.emulator != REFUSED:
        if asked != needed:
            names = "resources:VCPU and resources:PCPU" if facts.shared_amount else "resources:PCPU"
            problems.add(
                "cpu_resources_mismatch",
                f"{names}: {asked} CPUs where the guest and its emulator need {needed}",
            )
        if facts.shared_amount and facts.dedicated_amount - facts.emulator_cpus < 1:
            problems.add(
                "cpu_resources_mismatch",
                "resources:PCPU: the emulator takes the only one, none is left for the guest",
            )
    if facts.shared_amount and (facts.mask is not None or facts.realtime is not None):
        key = masks.DEDICATED_KEY if facts.mask is not None else masks.REALTIME_KEY
        problems.add(
            "cpu_resources_conflict",
            f"{key}: resources:VCPU and resources:PCPU already say what is dedicated",
        )


def _check_policy_fits(policy: str | None, facts: CpuFacts, problems: Problems) -> None:
    if policy in (None, SHARED):
        _check_unpinned(facts, problems)
    elif policy == DEDICATED and facts.mask is not None:
        problems.add("dedicated_mask_needs_mixed", f"{masks.DEDICATED_KEY}: needs the CPU policy mixed")
    elif policy == MIXED and facts.key_policy == MIXED and (facts.mask is None) == (facts.realtime is None):
        problems.add(
            "mixed_needs_one_mask",
            f"hw:cpu_policy: mixed needs {masks.DEDICATED_KEY} or {masks.REALTIME_KEY}, and not both",
        )
    elif policy == MIXED and facts.mask is not None and facts.names_realtime_mask:
        problems.add(
            "mixed_needs_one_mask",
            f"{masks.REALTIME_MASK_KEY}: does not go with {masks.DEDICATED_KEY}, use one of them",
        )


def _check_unpinned(facts: CpuFacts, problems: Problems) -> None:
    needs = "needs the CPU policy dedicated or mixed"
    if facts.threads not in (None, REFUSED):
        keys = f"{thread_policy.FLAVOR_KEY}, {thread_policy.IMAGE_KEY}"
        name = f"trait:{thread_policy.HYPERTHREADING}" if facts.written_threads else keys
        problems.add("cpu_thread_policy_needs_pinning", f"{name}: {facts.threads} {needs}")
    if facts.emulator == emulator_threads.ISOLATE:
        problems.add("emulator_policy_needs_pinning", f"{emulator_threads.KEY}: isolate {needs}")
    if facts.mask is not None:
        problems.add("dedicated_mask_needs_mixed", f"{masks.DEDICATED_KEY}: needs the CPU policy mixed")
    if facts.realtime is not None:
        problems.add("realtime_needs_pinning", f"{masks.REALTIME_KEY}: {needs}")


def _plan(policy: str | None, facts: CpuFacts, *, settled: bool) -> CpuPlan:
    dedicated = _dedicated_cpus(policy, facts)
    count = facts.dedicated_amount - facts.emulator_cpus if dedicated is None else len(dedicated)
    traits = thread_policy.thread_policy_traits(facts.key_threads)
    return CpuPlan(
        policy=policy,
        thread_policy=facts.threads,
        from_keys=facts.key_policy is not None,
        emulator_cpus=facts.emulator_cpus,
        dedicated=dedicated,
        dedicated_count=count,
        # An unsettled plan asks for some CPU, lest an empty group is reported on top.
        request=merged((_amounts(facts, count), traits)) if settled else FlavorGroup({VCPU: facts.vcpus}),
        settled=settled,
    )


def _dedicated_cpus(policy: str | None, facts: CpuFacts) -> frozenset[int] | None:
    if policy not in PINNED:
        return frozenset()
    if policy == DEDICATED:
        return frozenset(range(facts.vcpus))
    if facts.key_policy is None:
        return None
    return facts.mask or facts.realtime or frozenset()


def _amounts(facts: CpuFacts, dedicated_count: int) -> FlavorGroup:
    """What a policy key adds to the base group; explicit amounts stay where they were written."""
    if facts.key_policy == DEDICATED:
        return FlavorGroup({PCPU: facts.vcpus + facts.emulator_cpus})
    if facts.key_policy == MIXED:
        return FlavorGroup({VCPU: facts.vcpus - dedicated_count, PCPU: dedicated_count + facts.emulator_cpus})
    return FlavorGroup()
