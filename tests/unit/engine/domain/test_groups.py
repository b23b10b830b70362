"""Request groups are alike if they differ in nothing but their suffix, by names and by ids."""

from dataclasses import fields, replace

import pytest

from placement.engine.domain import groups
from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.search.query import GroupQuery
from placement.http.query_grammar import GroupSchema

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


GROUP = RequestGroup("1", {"VCPU": 1})
QUERY = CandidateQuery((GROUP,))
OTHER_OF_GROUP = {
    "suffix": "2",
    "resources": {"VCPU": 2},
    "required": (frozenset({"HW_CPU_X86_VMX"}),),
    "forbidden": frozenset({"HW_CPU_X86_VMX"}),
    "member_of": (frozenset({"rack"}),),
    "forbidden_aggregates": frozenset({"rack"}),
    "in_tree": "tree",
    "split": frozenset({"VCPU"}),
    "split_rule": SplitRule.SPREAD,
}
OTHER_OF_QUERY = {
    "groups": (GROUP, RequestGroup("2", {"VCPU": 1})),
    "isolate": True,
    "same_subtree": (frozenset({"1"}),),
    "root_required": frozenset({"HW_CPU_X86_VMX"}),
    "root_forbidden": frozenset({"HW_CPU_X86_VMX"}),
    "root_member_of": (frozenset({"rack"}),),
    "limit": 1,
    "one_provider_per_tree": True,
    "is_json": True,
    "on_core_trees": CandidateQuery((RequestGroup("1", {"PCPU": 1}),)),
}
# How many are shown, and how errors name places, is nothing that a consumer was claimed with.
OF_THE_ANSWER = {"limit", "is_json"}


@pytest.mark.parametrize("field", [field.name for field in fields(RequestGroup)])
def test_requests_that_differ_in_a_field_of_a_group_are_different(field):
    # A rule of splitting says nothing of a group that is not split.
    group = replace(GROUP, split=frozenset({"VCPU"})) if field == "split_rule" else GROUP
    other = replace(group, **{field: OTHER_OF_GROUP[field]})
    one, two = CandidateQuery((group,)), CandidateQuery((other,))
    assert one.identity != two.identity
    assert groups.written(one, None) != groups.written(two, None)
    assert groups.read(groups.written(two, None)).query == two


@pytest.mark.parametrize("field", [field.name for field in fields(CandidateQuery)])
def test_requests_that_differ_in_a_field_are_different(field):
    other = replace(QUERY, **{field: OTHER_OF_QUERY[field]})
    assert other.identity != QUERY.identity
    kept = groups.written(other, None)
    if field in OF_THE_ANSWER:
        assert groups.read(kept).query == QUERY
    else:
        assert groups.read(kept).query == other


def test_every_field_of_a_group_is_in_json_and_known_by_ids():
    names = {field.name for field in fields(RequestGroup)}
    assert {field.name for field in fields(GroupQuery)} == names
    assert {"suffix", *GroupSchema().fields} == names


def test_requests_of_earlier_releases_are_stored_in_this_form():
    query = CandidateQuery((replace(GROUP, **OTHER_OF_GROUP), RequestGroup("", {"VCPU": 1})))
    assert groups.written(query, "home", under_rules=True) == (
        '{"cluster":"home","form":1,"query":{"groups":[{"forbidden":["HW_CPU_X86_VMX"],'
        '"forbidden_aggregates":["rack"],"in_tree":"tree","member_of":[["rack"]],'
        '"required":[["HW_CPU_X86_VMX"]],"resources":{"VCPU":2},"split":["VCPU"],"split_rule":"spread",'
        '"suffix":"2"},{"resources":{"VCPU":1},"suffix":""}],"isolate":false,"on_core_trees":null,'
        '"one_provider_per_tree":false,"root_forbidden":[],"root_member_of":[],"root_required":[],'
        '"same_subtree":[]},"rules":true}'
    )


def test_equal_requests_have_one_identity_and_the_order_of_classes_counts():
    one, other = ({"VCPU": 1, "DISK_GB": 2}, {"DISK_GB": 2, "VCPU": 1})
    queries = [CandidateQuery((RequestGroup("1", amounts),)) for amounts in (one, dict(one), other)]
    first, again, turned = [query.identity for query in queries]
    assert hash(first) == hash(again)
    assert first == again != turned
