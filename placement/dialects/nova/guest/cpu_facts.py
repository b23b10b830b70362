"""What flavor and image say about CPUs, each statement checked on its own."""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.extra_specs import ExplicitRequests
from placement.dialects.nova.flavor import Flavor, ImageProperties, given
from placement.dialects.nova.groups import FlavorGroup
from placement.dialects.nova.guest import (
    cpu_policy,
    emulator_threads,
    masks,
    thread_policy,
)
from placement.dialects.nova.resource_classes import PCPU, VCPU


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The statements; each is None if not made, REFUSED (a mask: empty) if made wrongly.

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
        """CPUs asked for on top of the guest's, for the emulator threads: 0 or 1."""
        return int(self.emulator == emulator_threads.ISOLATE)

    @property
    def threads(self) -> str | None:
        """The thread policy, whichever way it is said."""
        return self.written_threads or self.key_threads


def read_cpu_facts(
    flavor: Flavor,
    image: ImageProperties,
    explicit: ExplicitRequests,
    image_traits: FlavorGroup,
    problems: Problems,
) -> CpuFacts:
    """Read and check every statement about CPUs.

    Source: nova-flavors.md, "Order of checks and error codes".
    """
    # The order of the calls is the order in which problems are reported.
    specs = flavor.extra_specs
    realtime = masks.realtime_mask(specs, image, flavor.vcpus, problems)
    key_policy = cpu_policy.CPU_POLICY.settle(
        given(specs, cpu_policy.FLAVOR_KEY), given(image, cpu_policy.IMAGE_KEY), problems
    )
    key_threads = thread_policy.THREAD_POLICY.settle(
        given(specs, thread_policy.FLAVOR_KEY), given(image, thread_policy.IMAGE_KEY), problems
    )
    mask = masks.dedicated_mask(specs, flavor.vcpus, problems)
    return CpuFacts(
        vcpus=flavor.vcpus,
        key_policy=key_policy,
        key_threads=key_threads,
        written_threads=thread_policy.written_thread_policy(explicit.groups, image_traits),
        emulator=emulator_threads.emulator_policy(specs, problems),
        realtime=realtime,
        mask=mask,
        names_realtime_mask=masks.names_realtime_mask(specs, image),
        shared_amount=explicit.total(VCPU),
        dedicated_amount=explicit.total(PCPU),
    )
