"""The query of GET /allocation_candidates: what each version understands, and how it refuses the rest."""

from __future__ import annotations

import uuid

import pytest

from tests.client import Client, code, detail

U, U2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
VMX, SSD = "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"
TWO = "resources1=VCPU:1&resources2=VCPU:1"
FORM = "Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024. Got: "
UNDEFINED = "placement.undefined_code"
MISSING = "placement.query.missing_value"
BAD = "placement.query.bad_value"

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

REFUSED = [
    ("1.10", "", "'resources' is a required property", None),
    ("1.10", "resources=", f"{FORM}empty string.", None),
    ("1.10", "resources=VCPU", f"{FORM}VCPU.", None),
    ("1.10", "resources=VCPU:1,", f"{FORM}.", None),
    ("1.10", "resources=VCPU:fred", "expected positive integer amount. Got: fred.", None),
    ("1.10", "resources=VCPU:%2B1", "expected positive integer amount. Got: +1.", None),
    ("1.10", "resources=VCPU:0", "requires amount >= 1. Got: 0.", None),
    ("1.10", "resources=VCPU:1_0", "expected positive integer amount.", None),
    ("1.10", "resources=VCPU&resources=VCPU:1", f"{FORM}VCPU.", None),
    ("1.39", f"resources=VCPU:1&in_tree=x&in_tree={U}", "in_tree", None),
    ("1.39", "resources=NOPE:1", "No such resource class NOPE.", UNDEFINED),
    ("1.15", "resources=VCPU:1&limit=1", "'limit' was unexpected", None),
    ("1.16", "resources=VCPU:1&limit=cow", "Failed validating 'pattern'", None),
    ("1.16", "resources=VCPU:1&limit=0", "Failed validating 'pattern'", None),
    ("1.16", "resources=VCPU:1&limit=-99", "Failed validating 'pattern'", None),
    ("1.16", "resources=VCPU:1&limit=", "Failed validating 'pattern'", None),
    ("1.16", f"resources=VCPU:1&required={VMX}", "'required' was unexpected", None),
    ("1.20", f"resources=VCPU:1&member_of={U}", "'member_of' was unexpected", None),
    ("1.21", f"resources=VCPU:1&required=!{VMX}", "HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !", None),
    ("1.17", "resources=VCPU:1&required=", "Got an empty trait in:", None),
    ("1.22", f"resources=VCPU:1&required={VMX},", "HW_CPU_X86_VMX,!CUSTOM_MAGIC.", None),
    ("1.17", "resources=VCPU:1&required=NOPE", "No such trait(s): NOPE.", None),
    ("1.22", "resources=VCPU:1&required=!NOPE", "No such trait(s): NOPE.", None),
    ("1.39", f"resources=VCPU:1&required={VMX},in:{SSD}", "No such trait(s): in:", UNDEFINED),
    ("1.38", f"resources=VCPU:1&required=in:{VMX}", "only supported since microversion 1.39.", UNDEFINED),
    ("1.39", f"resources=VCPU:1&required=in:!{VMX}", "does not support forbidden traits", UNDEFINED),
    ("1.23", f"resources=VCPU:1&member_of={U}&member_of={U2}", "Multiple member_of parameters", UNDEFINED),
    ("1.31", f"resources=VCPU:1&member_of=!{U}", "Forbidden member_of parameters are not", UNDEFINED),
    ("1.31", f"resources1=VCPU:1&member_of1=!{U}", "Forbidden member_of1 parameters are not", UNDEFINED),
    ("1.39", f"resources=VCPU:1&member_of={U},{U2}", "must be prefixed with the 'in:'", UNDEFINED),
    ("1.39", "resources=VCPU:1&member_of=x", "parameter to contain valid UUID(s). Got: x", UNDEFINED),
    ("1.24", "resources1=VCPU:1", "'resources' is a required property", UNDEFINED),
    ("1.24", f"{TWO}&group_policy=none&resources=VCPU:1", "unexpected", UNDEFINED),
    ("1.25", "resources01=VCPU:1", "'resources01' does not match any of the regexes", UNDEFINED),
    ("1.25", "resources0=VCPU:1", "'resources0' does not match any of the regexes", UNDEFINED),
    ("1.32", "resources_A=VCPU:1", "'^member_of([1-9][0-9]*)?$'", UNDEFINED),
    ("1.33", f"resources{'x' * 65}=VCPU:1", "'^member_of([a-zA-Z0-9_-]{1,64})?$'", UNDEFINED),
    ("1.33", "resources_@=VCPU:1", "does not match any of the regexes", UNDEFINED),
    ("1.33", "resources_A%0A=VCPU:1", "does not match any of the regexes", UNDEFINED),
    ("1.30", f"resources=VCPU:1&in_tree={U}", "'in_tree' does not match any of the regexes", UNDEFINED),
    ("1.34", f"resources=VCPU:1&root_required={VMX}", "'root_required' does not match any", UNDEFINED),
    ("1.35", "resources_A=VCPU:1&same_subtree=_A", "'same_subtree' does not match any", UNDEFINED),
    ("1.25", f"{TWO}&group_policy=bogus", "'bogus' is not one of ['none', 'isolate']", UNDEFINED),
    ("1.25", TWO, 'The "group_policy" parameter is required when specifying more than one', UNDEFINED),
    ("1.35", f"required={VMX}&required1={SSD}", "orphaned traits keys: required, required1", UNDEFINED),
    (
        "1.35",
        f"member_of={U}&resources1=VCPU:1&member_of3=!{U}",
        "orphaned member_of keys: member_of, member_of3",
        UNDEFINED,
    ),
    ("1.35", f"in_tree={U}", "All request groups must specify resources.", UNDEFINED),
    ("1.35", f"required=!{VMX}", "All request groups must specify resources.", UNDEFINED),
    ("1.25", "", "At least one request group (`resources` or `resources{$S}`) is required.", UNDEFINED),
    ("1.36", "", "There must be at least one resources or resources[$S] parameter.", MISSING),
    ("1.36", f"required_A={VMX}&same_subtree=_A", "There must be at least one resources or", MISSING),
    (
        "1.36",
        f"resources=VCPU:1&required_A={VMX}",
        "Resourceless suffixed group request should be specified in `same_subtree` query param",
        BAD,
    ),
    (
        "1.36",
        f"required={VMX}&resources_A=VCPU:1&same_subtree=_A",
        "Resourceless suffixed group request should be specified",
        BAD,
    ),
    (
        "1.36",
        "resources_A=VCPU:1&same_subtree=_A,_B",
        "Real suffixes should be specified in `same_subtree`:",
        BAD,
    ),
    (
        "1.36",
        "resources_A=VCPU:1&same_subtree=_A,",
        "Empty string (unsuffixed group) can not be specified in `same_subtree`",
        BAD,
    ),
    ("1.36", "resources_A=VCPU:1&same_subtree=", "Empty string (unsuffixed group) can not be", BAD),
    (
        "1.36",
        f"resources_A=VCPU:1&required_B={VMX}&same_subtree=_A,_B",
        'The "group_policy" parameter is required',
        UNDEFINED,
    ),
    (
        "1.22",
        f"resources=VCPU:1&required={VMX},!{VMX}",
        f"in the following traits keys: required: ({VMX})",
        None,
    ),
    (
        "1.39",
        f"resources1=VCPU:1&required1=in:{VMX},{SSD}&required1=!{VMX},!{SSD}",
        f"in the following traits keys: required1: ({VMX}, {SSD})",
        UNDEFINED,
    ),
    (
        "1.35",
        f"resources=VCPU:1&root_required={VMX},!{VMX}",
        f"Conflicting required and forbidden traits found in root_required: {VMX}",
        BAD,
    ),
    (
        "1.35",
        f"resources=VCPU:1&root_required={VMX}&root_required={VMX}",
        "Query parameter 'root_required' may be specified only once.",
        "placement.query.duplicate_key",
    ),
    ("1.39", f"resources=VCPU:1&root_required=in:{VMX},{SSD}", "only supported since", UNDEFINED),
    ("1.35", "resources=VCPU:1&root_required=NOPE", "No such trait(s): NOPE.", UNDEFINED),
    ("1.31", "resources=VCPU:1&in_tree=x", "'in_tree' parameter to be a format of uuid. Got: x", UNDEFINED),
    ("1.39", "resources=VCPU:1&bogus=1", "'bogus' does not match any of the regexes", UNDEFINED),
    ("1.39", "resources=VCPU:1&resources1=NOPE:1", "No such resource class NOPE.", UNDEFINED),
    ("1.39", "resources=VCPU:%ff", "Invalid query string parameters:", UNDEFINED),
]


@pytest.mark.parametrize(("version", "status"), [("1.9", 404), ("1.10", 200)])
def test_candidates_exist_since_1_10(embedded: Client, version: str, status: int):
    assert embedded.at(version).get("/allocation_candidates?resources=VCPU:1").status_code == status


@pytest.mark.parametrize(("version", "query"), FINE)
def test_understood(embedded: Client, version: str, query: str):
    answer = embedded.at(version).get(f"/allocation_candidates?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json == {"allocation_requests": [], "provider_summaries": {}}


@pytest.mark.parametrize(("version", "query", "message", "expected"), REFUSED)
def test_refused(embedded: Client, version: str, query: str, message: str, expected: str | None):
    answer = embedded.at(version).get(f"/allocation_candidates?{query}")
    assert answer.status_code == 400, answer.text
    assert message in detail(answer)
    if expected is not None:
        assert code(answer) == expected
