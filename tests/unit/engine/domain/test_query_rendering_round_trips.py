"""A generated query, rendered as a query string and parsed again, is the same query."""

from hypothesis import given

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
