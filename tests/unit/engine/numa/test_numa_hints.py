"""Hints, their merge, and what the policies make of them."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.alignment import (
    Alignment,
    Hint,
    HintTable,
    MergeCriteria,
    MergedHint,
    choose_affinity,
    is_allowed,
    merge_hints,
    numa_scorer,
    select_affinity,
    summarize,
)
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.combinations import NumaCombinations
from placement.engine.numa.cpus import layout_of, mask_of
from placement.engine.numa.host import (
    HostState,
    NumaAmounts,
    NumaExclusivity,
    NumaNeighbours,
    NumaPolicy,
    PodRefused,
)
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.engine.scoring.parameters import Weighted
from tests.unit.engine.numa.samples import holding, host, pod, topology

ANY = MergeCriteria(partial(is_allowed, exclusivity=NumaExclusivity.NONE, neighbours=NumaNeighbours()))
ALIGNED = (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)

MASKS = st.integers(1, 15)
UNSATISFIED = st.sampled_from((False, False, True))
HINTS = st.builds(Hint, st.none() | MASKS, st.booleans(), UNSATISFIED, st.integers(0, 3))
ROWS = st.lists(st.lists(HINTS, min_size=1, max_size=4), max_size=4)


def naive_merge(rows, numa_ids, allowed):
    """The walk over all combinations as it is specified."""
    best = (numa_ids, False, False, 0)
    for hints in product(*rows):
        affinity = numa_ids
        named = [one.affinity for one in hints if one.affinity is not None]
        for mask in named:
            affinity &= mask
        if not affinity:
            continue
        preferred = all(one.preferred for one in hints) and all(mask == named[0] for mask in named)
        preferred = preferred and allowed(affinity)
        unsatisfied = any(one.unsatisfied for one in hints) or any(mask != affinity for mask in named)
        score = sum(one.score for one in hints if one.affinity == affinity)
        narrower = (affinity.bit_count(), affinity) < (best[0].bit_count(), best[0])
        same_size = affinity.bit_count() == best[0].bit_count()
        if (
            (preferred and not best[1])
            or (preferred == best[1] and narrower)
            or (preferred == best[1] and same_size and score > best[3])
        ):
            best = (affinity, preferred, unsatisfied, score)
    return MergedHint(*best)


@settings(max_examples=400)
@given(ROWS, st.sets(MASKS))
def test_merging_agrees_with_walking_over_all_combinations(rows, forbidden):
    def allowed(affinity):
        return affinity not in forbidden

    assert merge_hints(rows, 15, MergeCriteria(allowed)) == naive_merge(rows, 15, allowed)


def test_too_many_combinations_are_cut_down_to_narrow_hints():
    rows = [[Hint(mask, preferred=False) for mask in range(1, 256)] for _ in range(4)]
    assert merge_hints(rows, 255, ANY).affinity.bit_count() == 1
    assert merge_hints([[Hint(1, False)] * 200] * 4, 255, ANY).affinity == 1


def test_masks_are_written_with_an_even_number_of_digits():
    hints = [Hint(1, True), Hint(6, False), Hint(None, True), Hint(16, True)]
    assert summarize([{"r": hints}]) == ["r prefer [01 <nil> 010000] among [01 0110 <nil> 010000]"]


def test_many_masks_are_counted():
    hints = [Hint(mask, True) for mask in range(1, 256)]
    named = " ".join(f"{mask:0{max(2, mask.bit_length() + mask.bit_length() % 2)}b}" for mask in range(1, 16))
    assert summarize([{"r": hints}]) == [f"r prefer [{named} and 240 more] among [{named} and 240 more]"]


def test_reasons_of_several_resources_are_sorted_and_joined_as_each_policy_does():
    hints = [{"b": [Hint(1, True)], "a": [Hint(2, True)]}]
    of_a, of_b = "a prefer [10] among [10]", "b prefer [01] among [01]"
    for policy, separator in ((NumaPolicy.RESTRICTED, " & "), (NumaPolicy.SINGLE_NUMA_NODE, ",")):
        found = select_affinity(policy, hints, 3, ANY)
        assert found.reasons == (f"Unaligned NUMA Hint cause {of_a}{separator}{of_b}",)


def test_bound_pods_weigh_their_amplified_request():
    request, scoring = pod("FullPCPUs", cpu=4000), Strategy("LeastAllocated", (Weighted("cpu", 1),))
    score = numa_scorer(NumaAllocator(host(1, 1, 4, 2, ratio=2), request), scoring, False)
    assert score((0,)) == 0  # 8 of 8 CPUs
    assert numa_scorer(NumaAllocator(host(1, 1, 4, 2, ratio=2), pod(cpu=4000)), scoring, False)((0,)) == 50


def test_singlenumanode_on_a_host_of_one_numa_node_has_no_affinity():
    allocator = NumaAllocator(host(1, 1, 4, 2), pod(cpu=2000))
    assert choose_affinity(allocator, Alignment(NumaPolicy.SINGLE_NUMA_NODE)) is None
    assert choose_affinity(allocator, Alignment(NumaPolicy.RESTRICTED)) == (0,)


def test_required_exclusivity_keeps_a_pod_off_shared_numa_nodes():
    state = host(3, 1, 4, 2, holdings=[holding("0,8")])
    alignment = Alignment(NumaPolicy.SINGLE_NUMA_NODE, NumaExclusivity.REQUIRED)
    assert choose_affinity(NumaAllocator(state, pod(cpu=2000)), alignment) == (2,)
    spanning = Alignment(NumaPolicy.RESTRICTED, NumaExclusivity.REQUIRED)
    lonely = host(2, 1, 4, 2, holdings=[holding("0")])
    with pytest.raises(PodRefused, match="Unaligned NUMA Hint cause"):
        choose_affinity(NumaAllocator(lonely, pod(cpu=12000)), spanning)


@settings(max_examples=150)
@given(
    st.sampled_from(((2, 1, 4, 2), (1, 3, 2, 2), (2, 2, 2, 2))),
    st.sampled_from(ALIGNED),
    st.sampled_from(NumaExclusivity),
    st.sampled_from((None, "", "FullPCPUs", "SpreadByPCPUs")),
    st.booleans(),
    st.data(),
)
def test_looking_at_narrow_combinations_first_never_changes_the_answer(
    shape, policy, exclusivity, bind, strict, data
):
    numa_ids = range(shape[0] * shape[1])
    amounts = st.fixed_dictionaries({"cpu": st.sampled_from((0, 2000, 4000)), "memory": st.integers(0, 3)})
    state = HostState(
        layout_of(topology(*shape)),
        capacity=NumaAmounts({numa: data.draw(amounts) for numa in numa_ids}),
        neighbours=NumaNeighbours(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)) << 2),
    )
    request = pod(
        bind, strict=strict, cpu=data.draw(st.integers(1, 8)) * 1000, memory=data.draw(st.integers(0, 5))
    )
    alignment = Alignment(policy, exclusivity)
    allocator = NumaAllocator(state, request)
    allowed = partial(is_allowed, exclusivity=exclusivity, neighbours=state.neighbours)
    score = numa_scorer(allocator, DEFAULT_SCORING, False)
    combinations = NumaCombinations(allocator)
    table = HintTable(allocator, combinations, allocator.fits, score, policy is NumaPolicy.RESTRICTED)
    for size in combinations.sizes:
        table.add_combinations(size)
    complete = select_affinity(policy, [table.hints], mask_of(numa_ids), MergeCriteria(allowed))
    try:
        affinity = choose_affinity(allocator, alignment)
        answer = None if affinity is None else mask_of(affinity)
    except PodRefused as refused:
        answer = refused.refusal.reasons
    assert answer == (complete.reasons or complete.affinity)
