"""`hw:cpu_policy` of the flavor against `hw_cpu_policy` of the image."""

from __future__ import annotations

from placement.dialects.nova.agreement import PolicyTable

DEDICATED = "dedicated"
SHARED = "shared"
MIXED = "mixed"
POLICIES = (DEDICATED, SHARED, MIXED)
PINNED = (DEDICATED, MIXED)
FLAVOR_KEY = "hw:cpu_policy"
IMAGE_KEY = "hw_cpu_policy"

CPU_POLICY = PolicyTable(
    FLAVOR_KEY, IMAGE_KEY, POLICIES, DEDICATED, "cpu_policy_invalid", "cpu_policy_conflict"
)
"""A dedicated flavor rules over every image; mixed goes with no image that says shared.

Source: nova-flavors.md, "CPU policy table".
"""
