"""A query for candidates means what its microversion understands, and nothing else is let through."""

from placement.allocations.candidate_query import parse, parse_text
from placement.common.microversions import NEWEST, Microversion
from placement.engine.domain.groups import UNSUFFIXED, RequestGroup
from placement.http.operations import read

ONE, TWO = (f"{digit}" * 8 + "-0000-4000-8000-000000000000" for digit in "12")


def parsed(text, minor=NEWEST.minor):
    return parse(read(text), Microversion(1, minor))


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


def test_the_same_text_is_another_query_for_another_microversion():
    text = b"resources=VCPU:1"
    assert parse_text(text, NEWEST) is parse_text(text, NEWEST)
    assert parse_text(text, Microversion(1, 28)) != parse_text(text, NEWEST)
