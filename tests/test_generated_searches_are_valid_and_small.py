"""Generated forests are forests, generated queries break no rule, the naive enumerator can afford them."""

from hypothesis import given

from placement.engine.domain.groups import UNSUFFIXED
from tests.naive import Forest as NaiveForest
from tests.strategies import (
    MAX_CHOICES,
    MAX_DEPTH,
    MAX_GROUPS,
    MAX_PROVIDERS,
    MAX_TREES,
    Forest,
    Search,
    forests,
    places,
    searches,
)


@given(forests())
def test_forests_keep_their_bounds_and_order_and_use_what_there_is(forest: Forest) -> None:
    assert 1 <= len(forest) <= MAX_PROVIDERS
    assert sum(provider.parent is None for provider in forest) <= MAX_TREES
    seen = set()
    for provider in forest:
        assert provider.parent is None or provider.parent in seen
        assert len(NaiveForest(forest).lineage(provider.uuid)) - 1 <= MAX_DEPTH
        seen.add(provider.uuid)
        assert set(provider.used) <= set(provider.inventories)
        assert all(amount >= 1 for amount in provider.used.values())
    assert len(seen) == len(forest)


@given(searches())
def test_queries_break_no_rule_about_combinations_and_their_choices_are_bounded(search: Search) -> None:
    forest, query = search
    assert len(query.groups) <= MAX_GROUPS
    assert len(forest) ** places(query) <= MAX_CHOICES
    suffixes = {group.suffix for group in query.groups}
    assert len(suffixes) == len(query.groups)
    assert any(group.resources for group in query.groups)
    constrained = frozenset().union(*query.same_subtree)
    for group in query.groups:
        assert group.resources or group.suffix in constrained
        assert not any(wanted <= group.forbidden for wanted in group.required)
    assert all(query.same_subtree)
    assert constrained <= suffixes - {UNSUFFIXED}
    assert not query.root_required & query.root_forbidden


@given(searches(one_provider_per_tree=True))
def test_old_queries_use_nothing_that_came_later(search: Search) -> None:
    _, query = search
    assert query.one_provider_per_tree
    assert not query.same_subtree
    assert not query.root_required | query.root_forbidden
    for group in query.groups:
        assert group.suffix == UNSUFFIXED or group.suffix.isdigit()
        assert group.resources
        assert group.in_tree is None
        assert not group.forbidden_aggregates
        assert all(len(wanted) == 1 for wanted in group.required)
