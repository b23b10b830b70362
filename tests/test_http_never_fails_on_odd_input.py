"""No input makes the service fail: every answer is one that the API promises, every error has its shape.

Every route and method gets wrongly typed, undecodable and repeated input. Malformed, oversize and deep bodies
are sent to a real worker (tests/test_hostile_bodies_harm_no_worker.py).
"""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import pytest
from flask import Flask

from placement.http.credentials import PAGES
from tests.client import Client, unique

VERSIONS = ("1.0", "1.7", "1.11", "1.12", "1.18", "1.24", "1.27", "1.29", "1.34", "1.38", "1.39")
PROMISED = {200, 201, 204, 400, 401, 403, 404, 405, 406, 409, 413, 415}
HUGE = 2**63


ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, HUGE, -HUGE, 2**64, 1e308, "", "x", "\N{SNOWMAN}", "\0", "x" * 70_000,
    [], {}, [None], {"": ""}, [[[]]], {"a": {"b": []}},
]  # fmt: skip
ODD_TEXTS = [
    "", "x", "%00", "%ff", "%0A", "..", "%2e%2e", "VCPU", "CUSTOM_A", "%F0%9F%98%80", "'", '"', "<b>",
    "a" * 5_000, "0", "-1", "1" * 5_000, "null", ":", ",", "!", "in:", "!in:", "in:,", "VCPU:1",
    "VCPU:" + "9" * 5_000, "VCPU:1,VCPU:2", "VCPU:%2B1", "HW_CPU_X86_VMX", "!HW_CPU_X86_VMX", "1" * 32,
    "-" * 36, str(uuid.UUID(int=5)), str(uuid.UUID(int=5)).upper(),
]  # fmt: skip
KEYS = [
    "name", "uuid", "parent_provider_uuid", "resource_provider_generation", "inventories", "traits",
    "aggregates", "allocations", "project_id", "user_id", "consumer_generation", "consumer_type", "mappings",
    "resource_class", "total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio",
    "resources", "generation", "",
]  # fmt: skip
HEALTH = ("/readyz", "/healthcheck")
PARAMETERS = [
    "name", "uuid", "member_of", "resources", "in_tree", "required", "limit", "group_policy", "root_required",
    "same_subtree", "resources1", "required_A", "member_of1", "in_tree_A", "project_id", "user_id",
    "consumer_type", "associated", "", "%ff", "resources%00",
]  # fmt: skip


def check(answer: Any) -> None:
    """The answer is one that the API promises."""
    assert answer.status_code in PROMISED, (answer.status_code, answer.text[:500])
    assert "Traceback" not in answer.text
    assert answer.headers["x-openstack-request-id"]
    if answer.status_code >= 400:
        error, *others = answer.json["errors"]
        assert not others or answer.request.path.startswith("/ext/")
        assert error["status"] == answer.status_code
        assert error["title"]
        assert "\n" not in error["detail"].split("\n\n", 1)[-1]
        assert len(answer.data) < 40_000


def paths(application: Flask) -> list[str]:
    """Every path, with odd and with plausible values in its places.

    But for those of health: nobody watches here, so that they say 503, as they should. Pages answer otherwise
    (tests/test_pages_are_guarded.py).
    """
    found = []
    for rule in application.url_map.iter_rules():
        if rule.rule in HEALTH or rule.rule.startswith(PAGES):
            continue
        for text in ("00000000-0000-0000-0000-000000000005", "CUSTOM_A", "%F0%9F%98%80", "%ff", "a" * 2_000):
            path = rule.rule
            for argument in rule.arguments:
                path = path.replace(f"<{argument}>", text)
            found.append(path)
            if not rule.arguments:
                break
    return sorted(set(found))


@pytest.fixture
def dice() -> random.Random:
    # The same numbers each time: a failure must be found again.
    return random.Random(20)


def test_odd_values_under_known_keys(shared: Client, shared_application: Flask, dice: random.Random):
    own = shared.provider(unique(), VCPU=4)
    real = [path for path in paths(shared_application) if "000000000005" in path or path.count("/") == 1]
    for path in real:
        for method in ("POST", "PUT"):
            for _ in range(25):
                body = {key: dice.choice(ODD_VALUES) for key in dice.sample(KEYS, dice.randint(0, 6))}
                version = dice.choice(VERSIONS)
                check(shared.at(version).call(method, path.replace(str(uuid.UUID(int=5)), own), body))


def valid_bodies(own: str) -> list[tuple[str, str, str, Any]]:
    """Requests that work, to be spoiled in one place."""
    record = {
        "total": 4,
        "reserved": 1,
        "min_unit": 1,
        "max_unit": 4,
        "step_size": 1,
        "allocation_ratio": 2.0,
    }
    entry = {
        **Client.allocations({}),
        "allocations": {own: {"resources": {"VCPU": 1}, "generation": 1}},
        "mappings": {"": [own], "_A": [own]},
    }
    consumer = str(uuid.uuid4())
    inventories = {"resource_provider_generation": 1, "inventories": {"VCPU": record}}
    old = {"allocations": [{"resource_provider": {"uuid": own}, "resources": {"VCPU": 1}}]}
    new = {"name": "x", "uuid": str(uuid.uuid4()), "parent_provider_uuid": None}
    place = f"/resource_providers/{own}"
    return [
        ("1.39", "POST", "/resource_providers", new),
        ("1.39", "PUT", place, {"name": unique(), "parent_provider_uuid": None}),
        ("1.39", "POST", f"{place}/inventories", {**record, "resource_class": "DISK_GB"}),
        ("1.39", "PUT", f"{place}/inventories", inventories),
        ("1.39", "PUT", f"{place}/inventories/VCPU", {**record, "resource_provider_generation": 1}),
        ("1.39", "PUT", f"{place}/traits", {"traits": ["HW_CPU_X86_VMX"], "resource_provider_generation": 1}),
        ("1.39", "PUT", f"{place}/aggregates", {"aggregates": [own], "resource_provider_generation": 1}),
        ("1.18", "PUT", f"{place}/aggregates", [own]),
        ("1.39", "PUT", f"/allocations/{consumer}", entry),
        ("1.7", "PUT", f"/allocations/{consumer}", old),
        ("1.39", "POST", "/allocations", {consumer: entry}),
        ("1.39", "POST", "/reshaper", {"inventories": {own: inventories}, "allocations": {consumer: entry}}),
        ("1.6", "PUT", "/resource_classes/CUSTOM_A", {"name": "CUSTOM_B"}),
        ("1.39", "POST", "/resource_classes", {"name": "CUSTOM_C"}),
    ]


def spoiled(content: Any, value: Any) -> list[Any]:
    """The content with the value in each of its places, once as a value and once as a key."""
    places = []
    if isinstance(content, dict):
        for key, inner in content.items():
            places.append({**content, key: value})
            places.extend({**content, key: deeper} for deeper in spoiled(inner, value))
            if isinstance(value, str):
                rest = {name: kept for name, kept in content.items() if name != key}
                places.append({**rest, value: inner})
    elif isinstance(content, list):
        for index, inner in enumerate(content):
            places.append([*content[:index], value, *content[index + 1 :]])
            places.extend(
                [*content[:index], deeper, *content[index + 1 :]] for deeper in spoiled(inner, value)
            )
        places.append([*content, value])
    return places


def test_one_odd_value_in_a_valid_body(shared: Client, dice: random.Random):
    own = shared.provider(unique(), VCPU=4)
    for version, method, path, content in valid_bodies(own):
        for value in ODD_VALUES:
            places = spoiled(content, value)
            for body in dice.sample(places, min(len(places), 6)):
                check(shared.at(version).call(method, path, body))


def test_odd_queries(embedded: Client, dice: random.Random):
    read = ["/resource_providers", "/allocation_candidates", "/usages", "/traits", "/resource_classes", "/"]
    for path in read:
        for text in ODD_TEXTS:
            for name in PARAMETERS:
                version = dice.choice(VERSIONS)
                also = f"&{dice.choice(PARAMETERS)}={dice.choice(ODD_TEXTS)}" if dice.random() < 0.5 else ""
                check(embedded.at(version).get(f"{path}?{name}={text}{also}"))


def test_odd_searches_on_real_providers(shared: Client, dice: random.Random):
    root = shared.provider(unique(), VCPU=4)
    shared.provider(unique(), root, VCPU={"total": 4, "min_unit": 2, "step_size": 2})
    for _ in range(400):
        pieces = [f"{dice.choice(PARAMETERS)}={dice.choice(ODD_TEXTS)}" for _ in range(dice.randint(0, 3))]
        query = "&".join(["resources=VCPU:1", *pieces])
        path = dice.choice(["/allocation_candidates", "/resource_providers"])
        check(shared.at(dice.choice(VERSIONS)).get(f"{path}?{query}"))


def test_odd_paths(shared: Client, shared_application: Flask):
    for rule in shared_application.url_map.iter_rules():
        for text in ODD_TEXTS if rule.arguments and not rule.rule.startswith(PAGES) else ():
            path = rule.rule
            for argument in rule.arguments:
                path = path.replace(f"<{argument}>", text)
            for method in ("GET", "DELETE"):
                check(shared.call(method, path))


@pytest.mark.parametrize(
    "headers",
    [
        {"OpenStack-API-Version": "placement " + "9" * 5_000 + ".1"},
        {"OpenStack-API-Version": "placement 1." + "0" * 6_000},
        {"OpenStack-API-Version": "placement \xff"},
        {"OpenStack-API-Version": "," * 1_000},
        {"X-Auth-Token": "\xff\xfe"},
        {"X-Auth-Token": "a" * 50_000},
        {"X-Roles": "," * 5_000},
        {"Accept": ";;;,,,q=x"},
        {"Accept": "application/json;q=zzz"},
        {"Content-Type": "application/json; charset=\xff"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Length": "9" * 6_000},
        {"X-Openstack-Request-Id": "req-" + "x" * 5_000},
        {"Host": "[::"},
        {"Host": "a b/c"},
        {"X-Forwarded-For": "\xff"},
    ],
)
def test_odd_headers(embedded: Client, headers: dict[str, str]):
    sent = {"X-Auth-Token": "admin", "Content-Type": "application/json", **headers}
    length = sent.pop("Content-Length", None)
    environment = {} if length is None else {"CONTENT_LENGTH": length}
    for method in ("GET", "POST"):
        data = json.dumps({"name": unique()}).encode() if method == "POST" else None
        answer = embedded.http.open(
            "/resource_providers", method=method, data=data, headers=sent, environ_overrides=environment
        )
        check(answer)


def test_body_beyond_the_limit_is_413(embedded: Client):
    body = b'{"name": "' + b"x" * (33 * 2**20) + b'"}'
    answer = embedded.post("/resource_providers", body, Content_Type="application/json")
    assert answer.status_code == 413
    check(answer)
