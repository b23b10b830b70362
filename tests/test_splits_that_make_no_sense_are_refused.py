"""What cannot be split is refused with the field: in query strings, as JSON, and in claims of both forms."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

import pytest

from tests.client import Client, detail

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/allocation_candidates"


def refusals(api: Client, query: dict[str, str], body: dict[str, object]) -> dict[str, list[str]]:
    """What searches and claims answer, each of which refuses it."""
    by_form = {
        "query string": (api.get(f"{PATH}?{urlencode(query)}"), claim_of(api, urlencode(query))),
        "JSON": (api.post(PATH, body), claim_of(api, body)),
    }
    assert all(answer.status_code == 400 for answers in by_form.values() for answer in answers)
    return {form: [detail(answer) for answer in answers] for form, answers in by_form.items()}


def claim_of(api: Client, query: object):
    body = {"consumer_uuid": str(uuid.uuid4()), "project_id": "p", "user_id": "u"}
    return api.post("/ext/v1/claims", {**body, "consumer_type": "INSTANCE", "query": query})


def amount(**members: object) -> dict[str, object]:
    return {"resources": {"PCPU": 4}, **members}


REFUSED = [
    ({"resources_a": "PCPU:4", "split_a": "VCPU"}, {"_a": amount(split=["VCPU"])}, "split"),
    ({"resources_a": "PCPU:4", "split_a": ""}, {"_a": amount(split=[])}, "split"),
    (
        {"resources_a": "PCPU:4", "split_a": "PCPU", "split_rule_a": "evenly"},
        {"_a": amount(split=["PCPU"], split_rule="evenly")},
        "split_rule",
    ),
    ({"resources_a": "PCPU:4", "split_rule_a": "pack"}, {"_a": amount(split_rule="pack")}, "split_rule"),
    ({"resources": "PCPU:4", "split": "PCPU"}, {"": amount(split=["PCPU"])}, "split"),
]


@pytest.mark.parametrize(("query", "groups", "field"), REFUSED)
def test_what_cannot_be_split_is_refused_by_its_field(
    api: Client, query: dict[str, str], groups: dict[str, object], field: str
):
    (suffix,) = groups
    said = refusals(api, query, {"groups": groups})
    assert all(text.startswith(f"{field}{suffix}: ") for text in said["query string"]), said
    places = (f"groups['{suffix}'].{field}: ", f"['groups']['{suffix}']['{field}']")
    assert all(any(place in text for place in places) for text in said["JSON"]), said


def test_a_split_of_no_group_or_below_nobody_is_refused(api: Client):
    nobody = {"resources_a": "PCPU:4", "split_b": "PCPU"}
    assert detail(api.get(f"{PATH}?{urlencode(nobody)}")).startswith("split_b: ")
    alone = {"resources_a": "PCPU:4", "split_a": "PCPU", "same_subtree": "_a"}
    said = refusals(api, alone, {"groups": {"_a": amount(split=["PCPU"])}, "same_subtree": [["_a"]]})
    assert all(text.startswith("same_subtree: ") for text in said["query string"]), said
    assert all(text.startswith("same_subtree[0]: ") for text in said["JSON"]), said


@pytest.fixture
def shared_disks(api: Client) -> str:
    """A host that shares two pools of disks, of 100 GB each; the host."""
    aggregate = str(uuid.uuid4())
    host = api.provider("host", VCPU=8)
    api.join(host, aggregate)
    for number in range(2):
        pool = api.provider(f"pool-{number}", DISK_GB=100)
        api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
        api.join(pool, aggregate)
    return host


def test_nothing_is_split_over_sharing_providers(api: Client, shared_disks: str):
    query = {"resources_disk": "DISK_GB:150", "split_disk": "DISK_GB"}
    groups = {"_disk": {"resources": {"DISK_GB": 150}, "split": ["DISK_GB"]}}
    said = refusals(api, query, {"groups": groups})
    reason = "only sharing providers offer DISK_GB"
    assert all(text.startswith(f"split_disk: {reason}") for text in said["query string"]), said
    assert all(text.startswith(f"groups['_disk'].split: {reason}") for text in said["JSON"]), said
    beside = {**query, "resources_cpu": "VCPU:1", "same_subtree": "_cpu,_disk", "group_policy": "none"}
    assert api.get(f"{PATH}?{urlencode(beside)}").json["allocation_requests"] == []


def test_the_placement_api_itself_knows_no_split(api: Client):
    answer = api.get("/allocation_candidates?resources_a=PCPU:4&split_a=PCPU")
    assert answer.status_code == 400
    assert "split_a" in detail(answer)
