"""Request groups are alike if they differ in nothing but their suffix, by names and by ids."""

from dataclasses import fields, replace

import pytest

from placement.domain.groups import RequestGroup
from placement.search.query import GroupQuery

OTHER = {"resources": {"VCPU": 2}, "suffix": "2"}


@pytest.mark.parametrize("group", [RequestGroup("1", {"VCPU": 1}), GroupQuery("1", ((1, 1),))])
def test_every_field_but_the_suffix_makes_a_difference(group):
    assert replace(group, suffix="2").condition == group.condition
    for field in fields(group):
        if field.name != "suffix":
            # Any other value does: also a field that is still to be added is of a type with equality.
            other = replace(group, **{field.name: OTHER.get(field.name, frozenset({"other"}))})
            assert other.condition != group.condition, field.name


def test_the_order_of_classes_makes_none():
    one, other = ({"VCPU": 1, "DISK_GB": 2}, {"DISK_GB": 2, "VCPU": 1})
    assert RequestGroup("1", one).condition == RequestGroup("2", other).condition
    assert hash(RequestGroup("1", one).condition) == hash(RequestGroup("2", other).condition)
