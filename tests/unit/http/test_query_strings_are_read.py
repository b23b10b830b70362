"""A query string becomes parameters in their order, and what breaks its schema is named."""

import pytest

from placement.engine.domain.errors import BadRequest
from placement.http import operations

KNOWN = ("name", "uuid", "limit")


def test_parameters_keep_their_order_and_are_decoded():
    assert operations.read("b=2&a=x%20y+z&b=%C3%A4&&empty=&bare") == [
        ("b", "2"),
        ("a", "x y z"),
        ("b", "ä"),
        ("empty", ""),
        ("bare", ""),
    ]
    assert operations.read("a=b=c") == [("a", "b=c")]
    assert operations.read("") == []


@pytest.mark.parametrize(("text", "why"), [("a=%FF", "is not UTF-8"), ("%00=1", "a NUL character")])
def test_what_is_no_text_for_a_database_is_refused(text, why):
    with pytest.raises(BadRequest, match=why):
        operations.read(text)


def test_unknown_parameters_are_named_in_order():
    operations.refuse_unknown([("name", "x"), ("uuid", "y")], KNOWN)
    with pytest.raises(BadRequest) as refused:
        operations.refuse_unknown([("zoo", "1"), ("name", "x"), ("ape", "2"), ("zoo", "3")], KNOWN)
    assert "Additional properties are not allowed ('ape', 'zoo' were unexpected)" in str(refused.value)
    with pytest.raises(BadRequest, match=r"\('ape' was unexpected\)"):
        operations.refuse_unknown([("ape", "2")], KNOWN)


def test_the_last_value_counts_unless_there_may_be_one_only():
    found = [("a", "1"), ("b", "2"), ("a", "3")]
    assert (operations.last(found, "a"), operations.last(found, "c")) == ("3", None)
    assert (operations.single(found, "b"), operations.single(found, "c")) == ("2", None)
    assert operations.every(found, "a") == ["1", "3"]
    with pytest.raises(BadRequest, match="a: may be given only once") as refused:
        operations.single(found, "a")
    assert refused.value.code == "placement.query.duplicate_key"


def test_what_becomes_of_parameters_stays_with_who_read_them():
    """A query string is read once, but everybody gets a list of his own."""
    operations.read("a=1&b=2").clear()
    assert operations.read("a=1&b=2") == [("a", "1"), ("b", "2")]
