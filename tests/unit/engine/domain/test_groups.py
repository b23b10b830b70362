"""Requests differ in whatever a field says, are read as they are written, and tell their mappings."""

from collections import Counter
from dataclasses import fields, replace
from itertools import permutations

import pytest
from hypothesis import given, settings

from placement.engine.domain import stored_requests
from placement.engine.domain.group_mappings import rebuilt, settled
from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.search.query import GroupQuery
from placement.http.query_grammar import GroupSchema
from tests.naive import enumerate_candidates
from tests.querystring import parsed, rendered
from tests.strategies import Search, searches

OTHER = {"resources": {"VCPU": 2}, "suffix": "2"}


@pytest.mark.parametrize("group", [RequestGroup("1", {"VCPU": 1}), GroupQuery("1", ((1, 1),))])
def test_every_field_but_the_suffix_makes_a_difference(group):
    assert replace(group, suffix="2").condition == group.condition
    for field in fields(group):
        if field.name != "suffix":
            # Any other value does: also a field that is still to be added is of a type with equality.
            other = replace(group, **{field.name: OTHER.get(field.name, frozenset({"other"}))})
            assert other.condition != group.condition, field.name


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


def test_requests_that_differ_in_a_field_of_a_group_are_different():
    for field in (field.name for field in fields(RequestGroup)):
        # A rule of splitting says nothing of a group that is not split.
        group = replace(GROUP, split=frozenset({"VCPU"})) if field == "split_rule" else GROUP
        one, two = (CandidateQuery((of,)) for of in (group, replace(group, **{field: OTHER_OF_GROUP[field]})))
        assert one.identity != two.identity, field
        assert stored_requests.written(one, None) != stored_requests.written(two, None), field
        assert stored_requests.read(stored_requests.written(two, None)).query == two, field


def test_requests_that_differ_in_a_field_are_different():
    for field in (field.name for field in fields(CandidateQuery)):
        other = replace(QUERY, **{field: OTHER_OF_QUERY[field]})
        assert other.identity != QUERY.identity, field
        wanted = QUERY if field in OF_THE_ANSWER else other
        assert stored_requests.read(stored_requests.written(other, None)).query == wanted, field


def test_every_field_of_a_group_is_in_json_and_known_by_ids():
    names = {field.name for field in fields(RequestGroup)}
    assert {field.name for field in fields(GroupQuery)} == names
    assert {"suffix", *GroupSchema().fields} == names


def test_requests_of_earlier_releases_are_stored_in_this_form():
    query = CandidateQuery((replace(GROUP, **OTHER_OF_GROUP), RequestGroup("", {"VCPU": 1})))
    assert stored_requests.written(query, "home", under_rules=True) == (
        '{"cluster":"home","form":1,"query":{"groups":[{"forbidden":["HW_CPU_X86_VMX"],'
        '"forbidden_aggregates":["rack"],"in_tree":"tree","member_of":[["rack"]],'
        '"required":[["HW_CPU_X86_VMX"]],"resources":{"VCPU":2},"split":["VCPU"],"split_rule":"spread",'
        '"suffix":"2"},{"resources":{"VCPU":1},"suffix":""}],"isolate":false,"on_core_trees":null,'
        '"one_provider_per_tree":false,"root_forbidden":[],"root_member_of":[],"root_required":[],'
        '"same_subtree":[]},"rules":true}'
    )


def test_the_order_of_classes_counts_in_requests_and_not_in_conditions():
    one, other = ({"VCPU": 1, "DISK_GB": 2}, {"DISK_GB": 2, "VCPU": 1})
    first, again, turned = [CandidateQuery((RequestGroup("1", of),)).identity for of in (one, {**one}, other)]
    assert hash(first) == hash(again)
    assert first == again != turned
    conditions = [RequestGroup(suffix, of).condition for suffix, of in (("1", one), ("2", other))]
    assert conditions[0] == conditions[1]
    assert hash(conditions[0]) == hash(conditions[1])


@given(searches(), searches(one_provider_per_tree=True))
def test_a_query_is_what_is_parsed_of_its_query_string(search: Search, flat_search: Search) -> None:
    assert parsed(rendered(search[1])) == search[1]
    # Without repeated traits and any of some.
    pairs = rendered(flat_search[1])
    assert parsed(pairs, one_provider_per_tree=True) == flat_search[1]
    keys = [key for key, _ in pairs if key.startswith("required")]
    assert len(keys) == len(set(keys))


A, B, C = (f"{letter}0000000-0000-4000-8000-000000000000" for letter in "abc")


def query(*groups: RequestGroup, **options: object) -> CandidateQuery:
    return CandidateQuery(groups, **options)


def group(suffix: str, required: str = "", **resources: int) -> RequestGroup:
    return RequestGroup(suffix, resources, required=(frozenset({required}),) if required else ())


ONE, TWO = group("1", VCPU=1), group("2", VCPU=1)
EXAMPLES = {
    "unsuffixed": (query(group("", VCPU=2, DISK_GB=1)), {A: {"VCPU": 2}, B: {"DISK_GB": 1}}, {"": [A, B]}),
    "one provider": (query(group("", VCPU=2), ONE), {A: {"VCPU": 3}}, {"": [A], "1": [A]}),
    "by amount": (query(group("1", VCPU=2), TWO), {A: {"VCPU": 1}, B: {"VCPU": 2}}, {"1": [B], "2": [A]}),
    "like groups": (query(TWO, ONE), {B: {"VCPU": 1}, A: {"VCPU": 1}}, {"1": [A], "2": [B]}),
    "traits": (query(group("1", "FAST", VCPU=1), TWO), {A: {"VCPU": 1}, B: {"VCPU": 1}}, None),
    "sums": (query(group("1", VCPU=2), TWO, group("3", VCPU=1)), {A: {"VCPU": 2}, B: {"VCPU": 2}}, None),
    "isolated": (
        query(group("1", VCPU=2), TWO, group("3", VCPU=1), isolate=True),
        {A: {"VCPU": 2}, B: {"VCPU": 1}, C: {"VCPU": 1}},
        {"1": [A], "2": [B], "3": [C]},
    ),
    "nothing asked": (query(ONE, group("2", "FAST")), {A: {"VCPU": 1}}, None),
    "roles": (query(ONE, TWO, same_subtree=(frozenset("1"),)), {A: {"VCPU": 1}, B: {"VCPU": 1}}, None),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_mappings_are_rebuilt_where_amounts_tell_them(name: str) -> None:
    asked, held, mappings = EXAMPLES[name]
    assert rebuilt(asked, held) == mappings


def test_what_would_take_too_long_is_left_out() -> None:
    """Forty groups of different conditions and like amounts could have got each provider."""
    groups = [group(str(number), f"T{number}", VCPU=1) for number in range(40)]
    held = {f"{number:08}-0000-4000-8000-000000000000": {"VCPU": 10} for number in range(4)}
    assert rebuilt(query(*groups), held) is None
    odd = [group(str(number), f"T{number}", VCPU=2) for number in range(40)]
    parts = {f"{number:08}-0000-4000-8000-000000000000": {"VCPU": 1} for number in range(80)}
    assert rebuilt(query(*odd), parts) is None


@settings(max_examples=200)
@given(searches())
def test_nothing_is_told_but_what_was_told_first(given_search: Search) -> None:
    providers, asked = given_search
    for candidate in sorted(enumerate_candidates(providers, asked), key=repr)[:20]:
        first = settled(asked, {suffix: sorted(members) for suffix, members in candidate.mappings})
        held: dict[str, dict[str, int]] = {}
        for provider, name, amount in candidate.allocations:
            held.setdefault(provider, {})[name] = amount
        again = rebuilt(asked, held)
        if again is not None:
            one, other = ({suffix: {*own} for suffix, own in each.items()} for each in (again, first))
            assert one == other


def test_like_groups_are_settled_whatever_the_candidate() -> None:
    asked = query(group("1", VCPU=1), group("2", VCPU=1), group("3", VCPU=1))
    orders = [settled(asked, dict(zip("123", ([p] for p in order)))) for order in permutations((A, B, C))]  # noqa: B905
    assert Counter(map(str, orders)) == {str({"1": [A], "2": [B], "3": [C]}): 6}
