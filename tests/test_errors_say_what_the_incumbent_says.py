"""Bad requests are answered in the words of the incumbent: log parsers and clients match them.

The expectations are what openstack-placement 16.0.0 answered, message by message, with the schema that is
broken cut out (`...`). Where we have more to say, it comes after its words.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from placement.http.gate import OWN_PATHS
from tests.client import Client, unique
from tests.conftest import application_on
from tests.server import BACKENDS

DATA = Path(__file__).parent / "data"
# The last two are requests that the record lacks, and what they need to be refused for one reason only.
SCENES = [
    *json.loads((DATA / "errors-of-the-incumbent.json").read_text()),
    json.loads((DATA / "refusals.json").read_text()),
    json.loads((DATA / "refusals-of-extensions.json").read_text()),
]
LEADS = {
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    404: "The resource could not be found.",
    409: "There was a conflict when trying to complete your request.",
}


def difference(api: Client, step: dict[str, Any]) -> str | None:
    """What is wrong with the answer to one request of a table, None if nothing is."""
    body = json.dumps(step["body"]).encode() if "body" in step else None
    headers = {"Content-Type": "application/json"} if "body" in step else {}
    answer = api.at(step["version"]).call(step["method"], step["path"], body, **headers)
    what = f"{step['method']} {step['path']} {json.dumps(step.get('body'))} at {step['version']}"
    if "message" not in step or answer.status_code != step["status"]:
        return None if answer.status_code == step["status"] else f"{what}: {answer.status} {answer.text}"
    error = answer.json["errors"][0]
    lead, _, message = error["detail"].rpartition("\n\n")
    message = re.sub(r"in schema([^:]*):.*?  On instance", r"in schema\1: ...  On instance", message).strip()
    found = [error["title"], error.get("code"), lead]
    own = step["path"].startswith(OWN_PATHS)
    wanted = [step["title"], step.get("code"), "" if own else step.get("lead", LEADS.get(step["status"]))]
    found.append(error.get("field"))
    wanted.append(step.get("field"))
    if found == wanted and message.startswith(step["message"]):
        return None
    return f"{what}:\n    {found} {message}\n    {wanted} {step['message']}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(len(SCENES)))
def test_every_error_begins_with_its_words(number: int, backend: str):
    with application_on(backend) as application:
        api = Client(application.test_client())
        found = [difference(api, step) for step in SCENES[number]]
    differences = [text for text in found if text]
    assert not differences, "\n".join(differences[:20])


STALE = {
    **Client.allocations({"5d2f7c1e-3c7b-4a39-9a43-6a0f8f4d2b11": {"VCPU": 1}}),
    "consumer_generation": 5,
}


@pytest.mark.parametrize(
    ("method", "path", "reason", "body"),
    [
        ("GET", "/nothing", "Not Found", None),
        ("PATCH", "/traits", "Method Not Allowed", None),
        ("POST", "/traits", "Method Not Allowed", None),
        ("PUT", "/allocations/x", "Unsupported Media Type", None),
        ("GET", "/usages", "Bad Request", None),
        ("PUT", "/allocations/5d2f7c1e-3c7b-4a39-9a43-6a0f8f4d2b11", "Conflict", STALE),
        ("GET", "/", "OK", None),
        ("GET", "/ext/v1/clusters/nobody", "Not Found", None),
        ("PUT", "/traits/CUSTOM_REASON", "Created", None),
        ("GET", "/traits/HW_CPU_X86_VMX", "No Content", None),
    ],
)
def test_reason_phrases_are_not_shouted(embedded: Client, method: str, path: str, reason: str, body: Any):
    assert embedded.call(method, path, body).status.partition(" ")[2] == reason


def test_a_schema_and_the_value_that_breaks_it_are_shown(embedded: Client):
    answer = embedded.post("/resource_classes", {"name": "bad"})
    assert answer.json["errors"][0]["detail"].endswith(
        "\n\n JSON does not validate: 'bad' does not match '^CUSTOM_[A-Z0-9_]+$'  "
        "Failed validating 'pattern' in schema['properties']['name']:     "
        "{'type': 'string', 'pattern': '^CUSTOM_[A-Z0-9_]+$', 'maxLength': 255}  "
        "On instance['name']:     'bad'  "
    )


def test_a_long_value_is_cut_where_it_is_shown(embedded: Client):
    body = {"name": ["x" * 400] * 5000}
    message = embedded.post("/resource_providers", body).json["errors"][0]["detail"]
    assert "Failed validating 'type'" in message
    assert len(message) < 40_000


def test_full_names_what_was_wanted_and_what_is_left_after_the_words_of_old(embedded: Client):
    host = embedded.provider(unique(), VCPU=8, DISK_GB={"total": 100, "min_unit": 10})
    full = embedded.claim({host: {"VCPU": 9}}).json["errors"][0]["detail"]
    assert full.rstrip().endswith(
        "Unable to allocate inventory: "
        f"Unable to create allocation for 'VCPU' on resource provider '{host}'. "
        "The requested amount would exceed the capacity. 9 more with 0 of 8 used."
    )
    unit = embedded.claim({host: {"DISK_GB": 5}}).json["errors"][0]["detail"]
    assert unit.rstrip().endswith(
        f"Unable to create allocation for 'DISK_GB' on resource provider '{host}'. "
        "The requested amount would violate inventory constraints. "
        "5 breaks min_unit 10, max_unit 2147483647 or step_size 1."
    )


def test_a_ratio_is_echoed_as_it_came_and_read_as_a_fraction(shared: Client):
    host = shared.provider(unique())
    path = f"/resource_providers/{host}/inventories"
    record = {"total": 8, "allocation_ratio": 1}
    created = shared.post(path, {"resource_class": "VCPU", **record})
    assert '"allocation_ratio":1,' in created.text
    assert '"allocation_ratio":1.0' in shared.get(path).text
    one = shared.put(f"{path}/VCPU", {"resource_provider_generation": 1, **record, "allocation_ratio": 16})
    assert '"allocation_ratio":16,' in one.text
    records = {"VCPU": {"total": 8, "allocation_ratio": 2}, "PCPU": {"total": 8}}
    every = shared.put(path, {"resource_provider_generation": 2, "inventories": records})
    assert '"allocation_ratio":2}' in every.text
    assert '"allocation_ratio":1.0}' in every.text


def test_traits_come_in_the_order_of_their_ids(shared: Client):
    custom = [f"CUSTOM_{letter}_{unique().upper().replace('-', '_')}" for letter in "ZBA"]
    host = shared.provider(unique(), VCPU=8)
    shared.carry(host, *custom)
    standard = ["COMPUTE_NODE", "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"]
    shared.carry(host, *reversed(custom), *reversed(standard))
    path = f"/resource_providers/{host}/traits"
    assert shared.get(path).json["traits"] == [*standard, *custom]
    for version in ("1.17", "1.39"):
        found = shared.at(version).get(f"/allocation_candidates?resources=VCPU:1&required={custom[0]}").json
        assert found["provider_summaries"][host]["traits"] == [*standard, *custom]


@pytest.mark.parametrize("amount", [" 10", "10 ", " 10 ", "\t10\n", "\u00a010"])
def test_blanks_around_an_amount_are_taken(shared: Client, amount: str):
    host = shared.provider(unique(), DISK_GB=10)
    asked = f"resources={quote(f'DISK_GB:{amount}')}&in_tree={host}"
    assert len(shared.get(f"/allocation_candidates?{asked}").json["allocation_requests"]) == 1
    assert [found["uuid"] for found in shared.get(f"/resource_providers?{asked}").json["resource_providers"]]
    assert len(shared.get(f"/ext/v1/allocation_candidates?{asked}").json["allocation_requests"]) == 1


def _leads_into(body: Any, pointer: str) -> bool:
    """Whether a JSON Pointer leads to a value of a body, or to a member that is lacking there."""
    for step in [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]:
        if isinstance(body, list):
            body = body[int(step)]
        elif isinstance(body, dict) and step in body:
            body = body[step]
        else:
            return body is None or isinstance(body, dict)
    return True


def test_fields_of_recorded_refusals_lead_into_what_was_sent():
    steps = [step for step in SCENES[-1] if "field" in step]
    pointers = [step for step in steps if step["field"].startswith("/")]
    assert len(steps) > 200
    assert len(pointers) > 100
    for step in pointers:
        assert _leads_into(step["body"], step["field"]), step
    for step in steps:
        if step not in pointers and step["field"] not in step["path"]:
            assert "must be at least one" in step["message"], step
