"""A message about a query names the word that is meant, and what is like it."""

from __future__ import annotations

import pytest

from placement.allocations import candidate_query
from placement.engine.domain.errors import BadRequest
from placement.http.operations import read
from placement.web.mistakes import Mistake, mistake

NAMES = {"PCPU", "VCPU", "MEMORY_MB", "HW_NUMA_ROOT", "edge", "cloud"}


def refusal(query: str) -> str:
    """Return what the service says about a query."""
    with pytest.raises(BadRequest) as refused:
        candidate_query.parse_extended(read(query))
    return str(refused.value)


@pytest.mark.parametrize(
    ("query", "before", "word", "instead"),
    [
        ("resouces=PCPU:2", "", "resouces", "resources"),
        ("resources=VCPU:2&clustr=edge", "resources=VCPU:2&", "clustr", "cluster"),
        ("resources=VCPU:2&group_policy=isolat", "resources=VCPU:2&group_policy=", "isolat", ""),
        ("resources=PCPU:x", "resources=PCPU:", "x", ""),
        ("resources=PCPU:-3", "resources=PCPU:", "-3", ""),
        ("resources=PCPU:1.5", "resources=PCPU:", "1.5", ""),
        ("limit=many&resources=PCPU:1", "limit=", "many", ""),
    ],
)
def test_the_wrong_word_of_a_query_is_marked(query: str, before: str, word: str, instead: str):
    found = mistake(refusal(query), query, NAMES)
    assert (found.before, found.word, found.instead) == (before, word, instead)
    assert found.before + found.word + found.after == query
    assert word in found.message
    assert "Failed validating" not in found.message


@pytest.mark.parametrize(
    ("message", "query", "corrected"),
    [
        ("No such resource class PCP.", "resources=PCP:2", "resources=PCPU:2"),
        ("No such resource class pcpu.", "resources=pcpu:2", "resources=PCPU:2"),
        ("No such trait(s): HW_NUM_ROOT.", "required=HW_NUM_ROOT", "required=HW_NUMA_ROOT"),
        ("cluster: No cluster egde found", "resources=PCPU:1&cluster=egde", "resources=PCPU:1&cluster=edge"),
    ],
)
def test_a_name_that_is_like_it_is_suggested(message: str, query: str, corrected: str):
    assert mistake(message, query, NAMES).corrected == corrected


def test_a_message_about_no_word_marks_nothing():
    message = refusal("")
    assert mistake(message, "", NAMES) == Mistake(message)
