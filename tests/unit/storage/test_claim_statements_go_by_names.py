"""The statements of claims read their parameter by the names of its fields, and share their parts."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from placement.storage import claim_rows
from placement.storage.backends import postgresql_claims
from placement.storage.claim_rows import NewClaims, NewPod

STATEMENTS = dict(
    re.findall(r"^PREPARE (\w+)\(jsonb\) AS\n(.*?);\n", postgresql_claims.STATEMENTS, re.M | re.S)
)
# What differs: what the parameter has, and what else must be so for a pod.
OF_ITS_OWN = {"given", "ready"}


def parts(statement: str) -> dict[str, str]:
    """The parts of a statement, by name."""
    return dict(re.findall(r"(\w+) AS \(\n(.*?)\n\)", statement, re.S))


def columns(statement: str, source: str) -> set[str]:
    """The columns in which a statement takes a document or an array of documents apart."""
    found = re.search(rf"{re.escape(source)} AS \w+\((.*?)\)\n", statement, re.DOTALL)
    assert found, source
    return {each.split()[0] for each in found[1].split(",")}


def fields(rows: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(rows)}


@pytest.mark.parametrize("name", STATEMENTS)
def test_columns_of_rows_are_the_fields_of_rows(name: str):
    statement = STATEMENTS[name]
    for member, rows in {
        "consumers": claim_rows.NewConsumer,
        "rises": claim_rows.UsageRise,
        "amounts": claim_rows.InventoryAmount,
        "records": claim_rows.ClaimRecord,
    }.items():
        assert columns(statement, f"jsonb_to_recordset(given.{member})") == fields(rows)
    parameter = NewClaims if name == "placement_claim_at_once" else NewPod
    assert columns(statement, "FROM jsonb_to_record($1)") == fields(parameter)


def test_parts_of_one_name_are_alike():
    fresh, pod = map(parts, STATEMENTS.values())
    assert {name: pod[name] for name in fresh.keys() - OF_ITS_OWN} == {
        name: text for name, text in fresh.items() if name not in OF_ITS_OWN
    }
    assert {"consumer", "locked", "stamped", "applied", "allocated", "recorded", "counted"} <= fresh.keys()
