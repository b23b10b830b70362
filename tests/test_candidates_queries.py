"""The query of GET /allocation_candidates: what each version understands, and how it refuses the rest."""

from __future__ import annotations

import uuid

import pytest

from tests.client import Client

U, U2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
VMX, SSD = "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"
TWO = "resources1=VCPU:1&resources2=VCPU:1"

FINE = [
    ("1.10", "resources=VCPU:1"),
    ("1.10", "resources=VCPU:1,VCPU:2&resources=DISK_GB:1"),
    ("1.10", "resources=NOPE:1&resources=VCPU:1"),
    ("1.10", "resources=VCPU:99999999999999999999999999"),
    ("1.16", "resources=VCPU:1&limit=5"),
    ("1.16", "resources=VCPU:1&limit=99999999999999999999"),
    ("1.17", f"resources=VCPU:1&required={VMX},{SSD}"),
    ("1.17", f"resources=VCPU:1&required=%20{VMX}%20"),
    ("1.21", f"resources=VCPU:1&member_of={U}"),
    ("1.21", f"resources=VCPU:1&member_of=in:{U},{U2}"),
    ("1.22", f"resources=VCPU:1&required={VMX},!{SSD}"),
    ("1.24", f"resources=VCPU:1&member_of={U}&member_of={U2}"),
    ("1.25", "resources1=VCPU:1"),
    ("1.25", "resources12345678901234567890=VCPU:1"),
    ("1.25", "resources=VCPU:1&resources1=VCPU:1"),
    ("1.25", f"{TWO}&group_policy=none"),
    ("1.25", f"{TWO}&group_policy=isolate&group_policy=none"),
    ("1.31", f"resources=VCPU:1&in_tree={U}"),
    ("1.31", f"resources1=VCPU:1&in_tree1={U}"),
    ("1.31", f"resources=VCPU:1&in_tree=%20{U}%20"),
    ("1.32", f"resources=VCPU:1&member_of=!{U}&member_of=!in:{U},{U2}"),
    ("1.33", "resources_A=VCPU:1"),
    ("1.33", "resources01=VCPU:1"),
    ("1.33", f"resources{'x' * 64}=VCPU:1"),
    ("1.35", f"resources=VCPU:1&root_required={VMX},!{SSD}"),
    ("1.36", "resources_A=VCPU:1&same_subtree=_A"),
    ("1.36", "resources_A=VCPU:1&same_subtree=%20_A%20,_A"),
    ("1.36", f"resources_A=VCPU:1&required_B={VMX}&same_subtree=_A,_B&group_policy=none"),
    ("1.38", f"resources=VCPU:1&required={VMX}&required={SSD}"),
    ("1.39", f"resources=VCPU:1&required=in:{VMX},{SSD}&required={VMX}"),
    ("1.39", f"resources=VCPU:1&required=in:{VMX},{SSD},!x".replace(",!x", f"&required=!{VMX}")),
]


@pytest.mark.parametrize(("version", "query"), FINE)
def test_understood(embedded: Client, version: str, query: str):
    answer = embedded.at(version).get(f"/allocation_candidates?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json == {"allocation_requests": [], "provider_summaries": {}}
