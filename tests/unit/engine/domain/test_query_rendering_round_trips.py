"""A generated query, rendered as a query string and parsed again, is the same query."""

from hypothesis import given

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from tests.querystring import parsed, rendered
from tests.strategies import Search, searches


@given(searches())
def test_round_trip(search: Search) -> None:
    _, query = search
    assert parsed(rendered(query)) == query


@given(searches(one_provider_per_tree=True))
def test_round_trip_without_repeated_or_any_of_traits(search: Search) -> None:
    _, query = search
    pairs = rendered(query)
    assert parsed(pairs, one_provider_per_tree=True) == query
    keys = [key for key, _ in pairs if key.startswith("required")]
    assert len(keys) == len(set(keys))


def test_every_parameter_is_rendered() -> None:
    one, two, three = (f"{digit}" * 8 + "-0000-4000-8000-000000000000" for digit in "123")
    query = CandidateQuery(
        groups=(
            RequestGroup(resources={"VCPU": 2, "MEMORY_MB": 512}, in_tree=one),
            RequestGroup(
                "_net-A",
                resources={"SRIOV_NET_VF": 1},
                required=(frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_B", "CUSTOM_C"})),
                forbidden=frozenset({"CUSTOM_D"}),
                member_of=(frozenset({one}), frozenset({two, three})),
                forbidden_aggregates=frozenset({three}),
            ),
            RequestGroup("7", forbidden=frozenset({"CUSTOM_D"})),
        ),
        same_subtree=(frozenset({"7", "_net-A"}),),
        root_required=frozenset({"CUSTOM_R"}),
        root_forbidden=frozenset({"CUSTOM_S"}),
        limit=5,
    )
    pairs = [
        ("resources", "VCPU:2,MEMORY_MB:512"),
        ("in_tree", one),
        ("resources_net-A", "SRIOV_NET_VF:1"),
        ("required_net-A", "CUSTOM_A,!CUSTOM_D"),
        ("required_net-A", "in:CUSTOM_B,CUSTOM_C"),
        ("member_of_net-A", one),
        ("member_of_net-A", f"in:{two},{three}"),
        ("member_of_net-A", f"!{three}"),
        ("required7", "!CUSTOM_D"),
        ("group_policy", "none"),
        ("root_required", "CUSTOM_R,!CUSTOM_S"),
        ("same_subtree", "7,_net-A"),
        ("limit", "5"),
    ]
    assert rendered(query) == pairs
    assert parsed(pairs) == query
