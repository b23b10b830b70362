"""CPU thread policy: the two keys, and the hyperthreading trait that says the same in another way."""

from __future__ import annotations

from placement.dialects.nova.agreement import PolicyTable
from placement.dialects.nova.groups import FlavorGroup, Groups

PREFER = "prefer"
ISOLATE = "isolate"
REQUIRE = "require"
POLICIES = (PREFER, ISOLATE, REQUIRE)
FLAVOR_KEY = "hw:cpu_thread_policy"
IMAGE_KEY = "hw_cpu_thread_policy"
HYPERTHREADING = "HW_CPU_HYPERTHREADING"

THREAD_POLICY = PolicyTable(
    FLAVOR_KEY, IMAGE_KEY, POLICIES, PREFER, "cpu_thread_policy_invalid", "cpu_thread_policy_conflict"
)
"""A flavor that says prefer silently rules over the image (nova-flavors.md, "Thread policy")."""


def written_thread_policy(groups: Groups, image: FlavorGroup) -> str | None:
    """What the hyperthreading trait says: forbidden is isolate, required is require, None if it is not there.

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
    """What a policy key asks of the base group: isolate forbids hyperthreading, require requires it."""
    return FlavorGroup(
        required=frozenset((HYPERTHREADING,) if policy == REQUIRE else ()),
        forbidden=frozenset((HYPERTHREADING,) if policy == ISOLATE else ()),
    )
