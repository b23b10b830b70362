"""The naive enumerator gives exactly the candidates of every granular case that has any to compare.

Its summaries list the trees of contributing providers, and before 1.29 only those providers.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.granular import expected_candidates, fresh_uuids, parameters, providers
from tests.naive import enumerate_candidates, summarised_providers
from tests.querystring import parsed

DATA = Path(__file__).parent / "data"
GRANULAR, WORKED = (
    json.loads((DATA / f"{name}.json").read_text()) for name in ("granular", "worked-examples")
)
CASES = {case["id"]: (document, case) for document in (GRANULAR, WORKED) for case in document["cases"]}
ANSWERED = [name for name, (_, case) in CASES.items() if case["expect"]["status"] == 200]


@pytest.mark.parametrize("name", ANSWERED)
def test_candidates(name: str) -> None:
    document, case = CASES[name]
    topology, expect = document["topologies"][case["topology"]], case["expect"]
    uuids = fresh_uuids(topology)
    is_old = int(case["microversion"].split(".")[1]) < 29
    query = parsed(parameters(case, uuids), one_provider_per_tree=is_old)
    found = enumerate_candidates(providers(topology, uuids), query)
    expected = expected_candidates(expect, uuids)
    assert found == set(expected)
    assert len(found) == len(expected)
    assert len({candidate.allocations for candidate in found}) == expect["distinct_allocations"]


@pytest.mark.parametrize("document", [GRANULAR, WORKED])
def test_every_topology_has_cases(document: dict[str, Any]) -> None:
    assert {case["topology"] for case in document["cases"]} == set(document["topologies"])


TREE = [("resources", "VCPU:1,FPGA:1")]
ROOT = [("in_tree1", "{cn1}"), ("same_subtree", "1"), ("root_required", "CUSTOM_A")]


@pytest.mark.parametrize(
    ("topology", "query", "listed"),
    [
        ("E5-child", TREE, {"cn", "kid", "s3"}),
        # The anchor of sharing providers is not listed.
        ("E5-child", [("resources", "DISK_GB:1,FPGA:1")], {"s1", "s3"}),
        # A provider without resources of the query does not contribute.
        ("E1-sharing", [("resources", "DISK_GB:10"), *ROOT], {"ss"}),
        ("E2-tree", [("resources", "VCPU:9")], set()),
    ],
)
def test_summaries_list_whole_trees(topology: str, query: list[tuple[str, str]], listed: set[str]) -> None:
    assert summarised(topology, query) == listed


def test_summaries_before_1_29_list_contributors_only() -> None:
    assert summarised("E5-child", TREE, one_provider_per_tree=True) == {"cn", "s3"}


def summarised(topology: str, query: list[tuple[str, str]], **options: bool) -> set[str]:
    uuids = fresh_uuids(WORKED["topologies"][topology])
    there = providers(WORKED["topologies"][topology], uuids)
    asked = parsed(parameters({"query": query}, uuids), **options)
    names = {uuid: name for name, uuid in uuids.items()}
    return {names[uuid] for uuid in summarised_providers(there, enumerate_candidates(there, asked), asked)}
