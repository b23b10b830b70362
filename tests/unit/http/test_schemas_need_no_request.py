"""A body is checked outside of requests; an argument says in whose words its errors are."""

from __future__ import annotations

from typing import Any

import pytest

from placement.common.microversions import NEWEST, OLDEST, Feature, Microversion
from placement.engine.domain.errors import BadRequest, BadValues
from placement.http.operations import load
from placement.http.schemas import Integer, Object, Sequence, String, VersionedSchema


class DiskSchema(VersionedSchema):
    """A part of a body."""

    size = Integer(1, 10, required=True)


class HostSchema(VersionedSchema):
    """A body with a member of a later version."""

    name = String(1, 8, required=True)
    disks = Sequence(Object(DiskSchema))
    owner = String(1, 8, metadata={"since": Feature.CONSUMER_TYPES})


def errors_of(body: Any, version: Microversion = NEWEST, *, own: bool) -> list[str]:
    """Return why a body is refused, one text for each error."""
    with pytest.raises(BadRequest) as refused:
        load(HostSchema, version, body, own=own)
    error = refused.value
    return list(map(str, error.findings)) if isinstance(error, BadValues) else [str(error)]


def test_a_good_body_is_returned_in_both_words():
    body = {"name": "a", "disks": [{"size": 1}]}
    assert load(HostSchema, NEWEST, body) == load(HostSchema, NEWEST, body, own=False) == body


def test_our_words_tell_all_that_is_wrong():
    wrong = {"name": "", "disks": [{"size": 0}, {"size": 11}], "nmae": "b"}
    found = errors_of(wrong, own=True)
    assert [each.partition(":")[0] for each in found] == ["nmae", "name", "disks[0].size", "disks[1].size"]


def test_the_words_of_placement_are_about_the_first_error():
    (found,) = errors_of({"name": "", "disks": [{"size": 0}]}, own=False)
    assert found.startswith("JSON does not validate: ")
    assert "size" not in found.partition("Failed validating")[0]


def test_a_member_of_a_later_version_is_unknown_before():
    body = {"name": "a", "owner": "b"}
    assert load(HostSchema, NEWEST, body) == body
    (found,) = errors_of(body, OLDEST, own=True)
    assert found.startswith("owner")


class RackSchema(VersionedSchema):
    """A body with arrays of several kinds."""

    units = Sequence(Integer(), most=20)
    names = Sequence(String(), unique=True)
    label = String()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("member", ["units", "names", "label"])
def test_a_long_array_is_counted_and_not_repeated(member: str, own: bool):
    with pytest.raises(BadRequest) as refused:
        load(RackSchema, NEWEST, {member: ["element"] * 2000}, own=own)
    text = str(refused.value.findings[0])
    assert "2000" in text
    assert "element'" not in text
    assert len(text) < 600


def test_an_array_over_the_bound_is_refused_with_the_bound():
    with pytest.raises(BadValues) as refused:
        load(RackSchema, NEWEST, {"units": [1] * 21})
    assert list(map(str, refused.value.findings)) == ["units: must have at most 20 elements, not 21"]


@pytest.mark.parametrize("own", [True, False])
def test_a_short_array_of_large_values_makes_a_short_message(own: bool):
    label = [[["x" * 300] * 10] * 10] * 10
    with pytest.raises(BadRequest) as refused:
        load(RackSchema, NEWEST, {"label": label}, own=own)
    assert len(str(refused.value.findings[0])) < 25_000
