"""`hw:emulator_threads_policy`: whether the emulator gets a CPU of its own. Flavor only."""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.nova.errors import REFUSED, Problems, shown
from placement.dialects.nova.flavor import given

ISOLATE = "isolate"
SHARE = "share"
POLICIES = (ISOLATE, SHARE)
KEY = "hw:emulator_threads_policy"


def emulator_policy(extra_specs: Mapping[str, str], problems: Problems) -> str | None:
    """`isolate`, `share`, None if not set, or REFUSED after `emulator_policy_invalid`.

    Source: nova-flavors.md, "Emulator threads".
    """
    policy = given(extra_specs, KEY)
    if policy is None or policy in POLICIES:
        return policy
    problems.add("emulator_policy_invalid", f"{KEY}: {shown(policy)} is none of {', '.join(POLICIES)}")
    return REFUSED
