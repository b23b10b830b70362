"""A mistake in a form shows the word that is wrong, and what was probably meant."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from placement.allocations import candidate_query
from placement.engine.domain.errors import BODY, BadRequest, Finding, parameter
from placement.http.query_strings import read
from placement.web.mistakes import Mistake, mistake


def refusal(query: str) -> Finding:
    """Return what the service says about a query."""
    with pytest.raises(BadRequest) as refused:
        candidate_query.parse_extended(read(query), Mock())
    (finding,) = refused.value.findings
    return finding


@pytest.mark.parametrize(
    ("query", "before", "word"),
    [
        ("resouces=PCPU:2", "", "resouces"),
        ("resources=VCPU:2&clustr=edge", "resources=VCPU:2&", "clustr"),
        ("resources=VCPU:2&group_policy=isolat", "resources=VCPU:2&group_policy=", "isolat"),
        ("resources=PCPU:x", "resources=PCPU:", "x"),
        ("resources=PCPU:-3", "resources=PCPU:", "-3"),
        ("resources=PCPU:1.5", "resources=PCPU:", "1.5"),
        ("limit=many&resources=PCPU:1", "limit=", "many"),
    ],
)
def test_the_wrong_word_of_a_query_is_marked(query: str, before: str, word: str):
    found = mistake(refusal(query), {"query": query})
    assert (found.before, found.word) == (before, word)
    assert found.before + found.word + found.after == query
    assert word in found.message
    assert "Failed validating" not in found.message


@pytest.mark.parametrize(
    ("finding", "query", "corrected"),
    [
        (
            Finding("No such trait(s): HW_NUM_ROOT.", value="HW_NUM_ROOT"),
            "required=HW_NUM_ROOT",
            "required=meant",
        ),
        (
            Finding("No cluster egde found", parameter("cluster"), "egde"),
            "resources=PCPU:1&cluster=egde",
            "resources=PCPU:1&cluster=meant",
        ),
        (
            Finding("No such trait A.", parameter("prefer"), "A"),
            "required=AA&prefer=A:2",
            "required=AA&prefer=meant:2",
        ),
    ],
)
def test_the_unknown_name_is_replaced_by_the_one_that_was_meant(finding: Finding, query: str, corrected: str):
    assert mistake(finding, {"query": query}, ["meant", "other"]).corrected == corrected


def test_an_unknown_host_is_marked_in_its_field_which_has_the_name_of_the_page():
    place = BODY / "world" / "without" / 1
    found = mistake(
        Finding("there is no host 'b' here", place, "b"), {"without": "a, b", "query": "b"}, ["c"]
    )
    assert (found.field, found.corrected) == ("without", "a, c")
    assert found.message == "Without these hosts: there is no host 'b' here"


def test_a_message_about_no_word_marks_nothing():
    finding = refusal("")
    assert mistake(finding, {"query": ""}) == Mistake(str(finding))
