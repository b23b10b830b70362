"""The naive summaries list the trees of contributing providers, and before 1.29 only those providers."""

from dataclasses import replace

from placement.engine.domain.groups import CandidateQuery
from tests import worked_examples
from tests.naive import enumerate_candidates, summarised_providers
from tests.querystring import parsed


def _summarised(topology: str, query: CandidateQuery, labels: dict[str, str]) -> set[str]:
    providers = worked_examples.providers(topology, labels)
    found = summarised_providers(providers, enumerate_candidates(providers, query), query)
    names = {uuid: name for name, uuid in labels.items()}
    return {names[uuid] for uuid in found}


def test_all_providers_of_the_own_trees_of_contributors() -> None:
    labels = worked_examples.labels("E5-child")
    query = parsed([("resources", "VCPU:1,FPGA:1")])
    assert _summarised("E5-child", query, labels) == {"cn", "kid", "s3"}
    assert _summarised("E5-child", replace(query, one_provider_per_tree=True), labels) == {"cn", "s3"}


def test_the_anchor_of_sharing_providers_is_not_listed() -> None:
    labels = worked_examples.labels("E5-child")
    query = parsed([("resources", "DISK_GB:1,FPGA:1")])
    assert _summarised("E5-child", query, labels) == {"s1", "s3"}


def test_a_provider_without_resources_of_the_query_does_not_contribute() -> None:
    labels = worked_examples.labels("E1-sharing")
    query = parsed(
        [
            ("resources", "DISK_GB:10"),
            ("in_tree1", labels["cn1"]),
            ("same_subtree", "1"),
            ("root_required", "CUSTOM_A"),
        ]
    )
    assert _summarised("E1-sharing", query, labels) == {"ss"}


def test_nothing_found_lists_nobody() -> None:
    labels = worked_examples.labels("E2-tree")
    assert _summarised("E2-tree", parsed([("resources", "VCPU:9")]), labels) == set()
