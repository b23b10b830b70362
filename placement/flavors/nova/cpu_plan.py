"""The plan of the guest's CPUs: policy, dedicated CPUs, the emulator's CPU and the thread policy.

CpuFacts           masks, policy keys, emulator policy and amounts, each checked on its own
  -> policy        the keys, else the policy that resources:VCPU and resources:PCPU stand for
  -> checks        the rules about what goes with the settled policy
  -> CpuPlan       amounts and traits of the base group, and the dedicated guest CPUs
"""

from __future__ import annotations

from dataclasses import dataclass

from placement.flavors.nova import cpu_facts
from placement.flavors.nova.extra_specs import PCPU, VCPU, ExplicitRequests
from placement.flavors.nova.flavor import Flavor, ImageProperties
from placement.flavors.nova.flavor_groups import FlavorGroup, merged
from placement.flavors.nova.problems import REFUSED, Problems


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The plan of the guest's CPUs; `group` is its part of the base group.

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
    group: FlavorGroup
    settled: bool


def plan_cpus(
    flavor: Flavor,
    image: ImageProperties,
    explicit: ExplicitRequests,
    image_group: FlavorGroup,
    problems: Problems,
) -> CpuPlan:
    """Settle everything about CPUs except their cells; adds a problem for each rule that does not hold.

    Source: nova-flavors.md, "CPU policy", "Masks", "Threads", "Order of checks and error codes".
    """
    found_before = len(problems)
    facts = cpu_facts.read_cpu_facts(flavor, image, explicit, image_group, problems)
    policy = _settle_policy(facts, problems)
    if facts.key_threads is not None and facts.written_threads is not None:
        problems.add(
            "hyperthreading_conflict",
            f"trait:{cpu_facts.HYPERTHREADING}",
            "says the same as a CPU thread policy, use one of them",
        )
    _check_policy_fits(policy, facts, problems)
    settled = len(problems) == found_before
    dedicated: frozenset[int] | None = frozenset()
    if policy == cpu_facts.DEDICATED:
        dedicated = frozenset(range(facts.vcpus))
    elif policy == cpu_facts.MIXED:
        dedicated = None if facts.key_policy is None else facts.mask or facts.realtime or frozenset()
    count = facts.dedicated_amount - facts.emulator_cpus if dedicated is None else len(dedicated)
    # Explicit amounts stay where they were written; a policy key adds amounts to the base group.
    amounts = {}
    if facts.key_policy == cpu_facts.DEDICATED:
        amounts = {PCPU: facts.vcpus + facts.emulator_cpus}
    elif facts.key_policy == cpu_facts.MIXED:
        amounts = {VCPU: facts.vcpus - count, PCPU: count + facts.emulator_cpus}
    asked = merged((FlavorGroup(amounts), cpu_facts.thread_policy_traits(facts.key_threads)))
    return CpuPlan(
        policy=policy,
        thread_policy=facts.threads,
        from_keys=facts.key_policy is not None,
        emulator_cpus=facts.emulator_cpus,
        dedicated=dedicated,
        dedicated_count=count,
        # An unsettled plan asks for some CPU, lest an empty group is reported on top.
        group=asked if settled else FlavorGroup({VCPU: facts.vcpus}),
        settled=settled,
    )


def _settle_policy(facts: cpu_facts.CpuFacts, problems: Problems) -> str | None:
    """Return the policy of the keys, else of the explicit amounts (nova-flavors.md, "Explicit amounts")."""
    shared, dedicated = facts.shared_amount, facts.dedicated_amount
    if facts.key_policy is not None:
        if facts.key_policy != REFUSED and shared + dedicated > 0:
            problems.add(
                "cpu_resources_conflict",
                "resources:VCPU, resources:PCPU",
                "do not go with hw:cpu_policy or hw_cpu_policy",
            )
        return facts.key_policy
    if dedicated == 0:
        return cpu_facts.SHARED if shared else None
    # With a refused emulator policy it is unknown how many CPUs the amounts should add up to.
    if facts.emulator != REFUSED:
        _check_amounts_add_up(facts, problems)
    if shared and (facts.mask is not None or facts.realtime is not None):
        key = cpu_facts.DEDICATED_KEY if facts.mask is not None else cpu_facts.REALTIME_KEY
        problems.add(
            "cpu_resources_conflict",
            key,
            "resources:VCPU and resources:PCPU already say which CPUs are dedicated",
        )
    return cpu_facts.MIXED if shared else cpu_facts.DEDICATED


def _check_amounts_add_up(facts: cpu_facts.CpuFacts, problems: Problems) -> None:
    """Add a problem unless the explicit amounts are the CPUs of the guest and its emulator."""
    shared, dedicated = facts.shared_amount, facts.dedicated_amount
    asked, needed = shared + dedicated, facts.vcpus + facts.emulator_cpus
    if asked != needed:
        names = "resources:VCPU and resources:PCPU" if shared else "resources:PCPU"
        problems.add(
            "cpu_resources_mismatch",
            names,
            f"{asked} CPUs where the guest and its emulator need {needed}",
        )
    if shared and dedicated - facts.emulator_cpus < 1:
        problems.add(
            "cpu_resources_mismatch",
            "resources:PCPU",
            "the emulator takes the only one, none is left for the guest",
        )


def _check_policy_fits(policy: str | None, facts: cpu_facts.CpuFacts, problems: Problems) -> None:
    if policy in (None, cpu_facts.SHARED):
        needs = "needs the CPU policy dedicated or mixed"
        if facts.threads not in (None, REFUSED):
            keys = f"{cpu_facts.THREAD_POLICY_KEY}, {cpu_facts.THREAD_POLICY_IMAGE_KEY}"
            name = f"trait:{cpu_facts.HYPERTHREADING}" if facts.written_threads else keys
            problems.add("cpu_thread_policy_needs_pinning", name, f"{facts.threads} {needs}")
        if facts.emulator == cpu_facts.ISOLATE:
            problems.add("emulator_policy_needs_pinning", cpu_facts.EMULATOR_KEY, f"isolate {needs}")
        if facts.mask is not None:
            problems.add("dedicated_mask_needs_mixed", cpu_facts.DEDICATED_KEY, "needs the CPU policy mixed")
        if facts.realtime is not None:
            problems.add("realtime_needs_pinning", cpu_facts.REALTIME_KEY, needs)
    elif policy == cpu_facts.DEDICATED and facts.mask is not None:
        problems.add("dedicated_mask_needs_mixed", cpu_facts.DEDICATED_KEY, "needs the CPU policy mixed")
    elif (
        policy == cpu_facts.MIXED
        and facts.key_policy == cpu_facts.MIXED
        and (facts.mask is None) == (facts.realtime is None)
    ):
        problems.add(
            "mixed_needs_one_mask",
            "hw:cpu_policy",
            f"mixed needs {cpu_facts.DEDICATED_KEY} or {cpu_facts.REALTIME_KEY}, and not both",
        )
    elif policy == cpu_facts.MIXED and facts.mask is not None and facts.names_realtime_mask:
        problems.add(
            "mixed_needs_one_mask",
            cpu_facts.REALTIME_MASK_KEY,
            f"does not go with {cpu_facts.DEDICATED_KEY}, use one of them",
        )
