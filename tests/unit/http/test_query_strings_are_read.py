"""A query string becomes parameters in their order, means what its microversion knows, or is refused."""

import datetime

import pytest

from placement.allocations.candidate_query import parse, parse_text
from placement.common.microversions import NEWEST, Microversion
from placement.engine.domain.errors import BadRequest, BadValues
from placement.engine.domain.groups import UNSUFFIXED
from placement.http import query_strings
from placement.http.answers import newest
from placement.http.query_strings import read

KNOWN = ("name", "uuid", "limit")


def test_parameters_keep_their_order_and_are_decoded():
    assert query_strings.read("b=2&a=x%20y+z&b=%C3%A4&&empty=&bare") == [
        ("b", "2"),
        ("a", "x y z"),
        ("b", "ä"),
        ("empty", ""),
        ("bare", ""),
    ]
    assert query_strings.read("a=b=c") == [("a", "b=c")]
    # It is read once, but each reader gets a list of its own.
    query_strings.read("a=b=c").clear()
    assert query_strings.read("a=b=c") == [("a", "b=c")]
    assert query_strings.read("") == []


def test_unknown_parameters_are_named_in_order():
    query_strings.refuse_unknown([("name", "x"), ("uuid", "y")], KNOWN)
    with pytest.raises(BadValues) as refused:
        query_strings.refuse_unknown([("zoo", "1"), ("name", "x"), ("ape", "2"), ("zoo", "3")], KNOWN)
    assert [each.place.field for each in refused.value.findings] == ["ape", "zoo"]
    with pytest.raises(BadValues, match=r"^ape: is not a parameter"):
        query_strings.refuse_unknown([("ape", "2")], KNOWN)


def test_unknown_parameters_of_placement_are_refused_in_its_words():
    with pytest.raises(BadRequest) as refused:
        query_strings.refuse_unknown([("ape", "2")], KNOWN, own=False)
    assert str(refused.value).startswith("Invalid query string parameters: Additional properties are not")


def test_the_last_value_counts_unless_there_may_be_one_only():
    found = [("a", "1"), ("b", "2"), ("a", "3")]
    assert (query_strings.last(found, "a"), query_strings.last(found, "c")) == ("3", None)
    assert (query_strings.single(found, "b"), query_strings.single(found, "c")) == ("2", None)
    assert query_strings.every(found, "a") == ["1", "3"]


def test_groups_come_in_the_order_in_which_they_are_first_named():
    text = "resources_b=VCPU:2&resources=DISK_GB:5&required_b=CUSTOM_A&resources_a=VGPU:1&group_policy=none"
    assert [group.suffix for group in parse(read(text), NEWEST).groups] == ["_b", UNSUFFIXED, "_a"]


def test_the_same_text_is_another_query_for_another_microversion():
    text = b"resources=VCPU:1"
    assert parse_text(text, NEWEST) is parse_text(text, NEWEST)
    assert parse_text(text, Microversion(1, 28)) != parse_text(text, NEWEST)


def test_the_newest_of_some_times_is_told_and_nothing_of_none():
    then, later = (datetime.datetime(2024, 5, day, 7, 8, 9, 123456) for day in (6, 7))
    assert newest([then, None, later]) == later
    assert newest([None]) is None
