"""A query for candidates means what its microversion understands, and nothing else is let through."""

import pytest

from placement.allocations.candidate_query import parse, parse_text
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import UNSUFFIXED, RequestGroup
from placement.http.microversions import NEWEST, Microversion
from placement.http.operations import read

ONE, TWO = (f"{digit}" * 8 + "-0000-4000-8000-000000000000" for digit in "12")


def parsed(text, minor=NEWEST.minor):
    return parse(read(text), Microversion(1, minor))


def refusal(text, minor=NEWEST.minor):
    with pytest.raises(BadRequest) as refused:
        parsed(text, minor)
    return refused.value


def test_groups_come_in_the_order_in_which_they_are_first_named():
    query = parsed(
        "resources_b=VCPU:2&resources=DISK_GB:5&required_b=HW_CPU_X86_AVX,!CUSTOM_OLD&resources_a=VGPU:1"
        "&group_policy=isolate&limit=7"
    )
    assert [group.suffix for group in query.groups] == ["_b", UNSUFFIXED, "_a"]
    assert query.groups[0] == RequestGroup(
        "_b",
        resources={"VCPU": 2},
        required=(frozenset({"HW_CPU_X86_AVX"}),),
        forbidden=frozenset({"CUSTOM_OLD"}),
    )
    assert (query.isolate, query.limit, query.one_provider_per_tree) == (True, 7, False)


def test_every_condition_finds_its_place():
    query = parsed(
        f"resources_c=VCPU:1&in_tree_c={ONE}&member_of_c={ONE}&member_of_c=!{TWO}&required_c=in:CUSTOM_A,CUSTOM_B"
        "&resources_d=VGPU:1&group_policy=none&same_subtree=_c,_d&root_required=CUSTOM_R,!CUSTOM_S"
    )
    group = query.groups[0]
    assert group.in_tree == ONE
    assert (group.member_of, group.forbidden_aggregates) == ((frozenset({ONE}),), frozenset({TWO}))
    assert group.required == (frozenset({"CUSTOM_A", "CUSTOM_B"}),)
    assert query.same_subtree == (frozenset({"_c", "_d"}),)
    assert (query.root_required, query.root_forbidden) == (frozenset({"CUSTOM_R"}), frozenset({"CUSTOM_S"}))
    assert query.isolate is False


@pytest.mark.parametrize(
    ("parameter", "since"),
    [
        ("limit=1", 16),
        ("required=CUSTOM_A", 17),
        (f"member_of={ONE}", 21),
        ("required=!CUSTOM_A", 22),
        (f"member_of={ONE}&member_of={TWO}", 24),
        ("resources1=VGPU:1", 25),
        ("group_policy=none", 25),
        (f"in_tree={ONE}", 31),
        (f"member_of=!{ONE}", 32),
        ("resources_x=VGPU:1", 33),
        ("root_required=CUSTOM_A", 35),
        ("resources1=VGPU:1&group_policy=none&same_subtree=1", 36),
        ("required=in:CUSTOM_A,CUSTOM_B", 39),
        ("required=CUSTOM_A&required=CUSTOM_B", 39),
    ],
)
def test_a_parameter_exists_since_its_microversion(parameter, since):
    text = f"resources=VCPU:1&{parameter}"
    before = _outcome(text, since - 1)
    assert _outcome(text, since) != before
    assert isinstance(before, str) or parameter.count("&")


def _outcome(text, minor):
    """The query, or what is said about it if it is refused."""
    try:
        return parsed(text, minor)
    except BadRequest as error:
        return str(error)


def test_trees_are_searched_as_single_providers_before_1_29():
    assert parsed("resources=VCPU:1", 28).one_provider_per_tree
    assert not parsed("resources=VCPU:1", 29).one_provider_per_tree


@pytest.mark.parametrize(
    ("text", "minor", "said"),
    [
        ("limit=1", 24, "'resources' is a required property"),
        ("resources=VCPU:1&pony=1", 24, "('pony' was unexpected)"),
        ("resources=VCPU:1&pony=1", 39, "'pony' does not match any of the regexes"),
        ("resources=VCPU:1&limit=0", 39, "'0' does not match '^[1-9][0-9]*$'"),
        ("resources=VCPU:1&group_policy=x", 39, "'x' is not one of ['none', 'isolate']"),
        ("resources1=VCPU:1&resources2=VCPU:1", 39, 'The "group_policy" parameter is required'),
        ("required=CUSTOM_A", 39, "There must be at least one resources"),
        ("required1=CUSTOM_A", 35, "orphaned traits keys: required1"),
        (f"member_of1={ONE}", 35, "orphaned member_of keys: member_of1"),
        ("limit=1", 35, "At least one request group"),
        ("resources=VCPU:1&required1=CUSTOM_A", 39, "bad group(s) - ['1']"),
        ("resources=VCPU:1&same_subtree=_x", 39, "['_x'] not found in ['']"),
        ("resources=VCPU:1&required=CUSTOM_A,!CUSTOM_A", 39, "Conflicting required and forbidden"),
        ("resources=VCPU:1&root_required=CUSTOM_A,!CUSTOM_A", 39, "found in root_required: CUSTOM_A"),
        ("resources=VCPU:1&root_required=A&root_required=B", 39, "may be specified only once"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(text, minor, said):
    assert said in str(refusal(text, minor))


def test_the_same_text_is_another_query_for_another_microversion():
    text = b"resources=VCPU:1"
    assert parse_text(text, NEWEST) is parse_text(text, NEWEST)
    assert parse_text(text, Microversion(1, 28)) != parse_text(text, NEWEST)
