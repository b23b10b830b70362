"""Lists of changes say what a change did in one line, with names."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from flask import Flask

from placement.engine.domain.audit import DescribedRecord
from placement.providers.statements.providers import NamedPlace
from placement.web.differences import differences
from placement.web.records import rows_of

NOW = datetime.datetime(2026, 1, 2)
CORE = "0b867bc7-853b-50a2-aede-87f0aa304445"


def held(**amounts: int) -> dict[str, Any]:
    return {"allocations": {CORE: amounts}, "project_id": "core", "user_id": "upf"}


def record(kind: str, before: Any, after: Any, **names: Any) -> DescribedRecord:
    documents = (None if each is None else json.dumps(each) for each in (before, after))
    return DescribedRecord(1, NOW, "update", kind, CORE, "ann", "ops", *documents, **names)


@pytest.mark.parametrize(
    ("changed", "name", "effect"),
    [
        (
            record("allocations", None, held(PCPU=8), hosts_after=("edge-01",)),
            "consumer 0b867bc7",
            "+8 CPU on edge-01",
        ),
        (
            record("allocations", held(PCPU=8), None, hosts_before=("edge-01",)),
            "consumer 0b867bc7",
            "\N{MINUS SIGN}8 CPU on edge-01",
        ),
        (
            record("allocations", held(PCPU=8), held(PCPU=8), hosts_before=("a",), hosts_after=("b",)),
            "consumer 0b867bc7",
            "8 CPU: a → b",
        ),
        (record("allocations", {"omitted_characters": 9000}, None), "consumer 0b867bc7", ""),
        (record("traits", {"traits": ["HW_A"]}, {"traits": ["CUSTOM_B"]}), CORE, "+B, \N{MINUS SIGN}HW_A"),
        (record("inventories", {}, {"VCPU": {"total": 64}}, provider="edge-01"), "edge-01", "+64 vCPU"),
        (record("resource_provider", {"name": "gone"}, None), "gone", ""),
        (
            record("node", None, {"providers_created": 35, "providers_changed": 0}),
            CORE,
            "35 providers created",
        ),
        (record("pod", None, {"node": "n1", "cpuset": "0-3", "qos": "LSR"}), CORE, "on n1, CPUs 0-3, LSR"),
    ],
)
def test_a_change_is_one_line(changed: DescribedRecord, name: str, effect: str):
    with Flask(__name__).test_request_context():
        (row,) = rows_of([changed])
    assert (row.name, row.effect, row.target) == (name, effect, CORE)


def test_only_what_differs_is_shown_of_two_documents():
    before = {**held(PCPU=4, VCPU=1), "user_id": "old"}
    places = {CORE: NamedPlace("edge-01/core-0", CORE, "edge-01")}
    assert differences(before, held(PCPU=8, VCPU=1), places) == [
        ("edge-01/core-0, PCPU", "4 CPU", "8 CPU"),
        ("user_id", "old", "upf"),
    ]
