"""The naive enumerator gives exactly the candidates of every worked example."""

import pytest

from placement.engine.domain.inventories import Inventory
from tests import worked_examples
from tests.naive import enumerate_candidates
from tests.querystring import parsed
from tests.worked_examples import EXAMPLES, TOPOLOGIES, WorkedExample


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_candidates(example: WorkedExample) -> None:
    labels = worked_examples.labels(example.topology)
    query = parsed(
        worked_examples.parameters(example, labels), one_provider_per_tree=example.one_provider_per_tree
    )
    found = enumerate_candidates(worked_examples.providers(example.topology, labels), query)
    assert found == worked_examples.candidates(example, labels)


def test_no_row_expects_a_candidate_twice() -> None:
    for example in EXAMPLES:
        labels = worked_examples.labels(example.topology)
        assert len(worked_examples.candidates(example, labels)) == len(example.expected)


def test_every_topology_has_rows() -> None:
    assert {example.topology for example in EXAMPLES} == set(TOPOLOGIES)


def test_capacity_of_the_ratio_example() -> None:
    inventory = TOPOLOGIES["E4-ratio"][0].inventories["VCPU"]
    assert isinstance(inventory, Inventory)
    assert inventory.capacity == 5
