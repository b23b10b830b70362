from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.cpus import format_cpu_list
from placement.flavors.nova.cells import deal
from placement.flavors.nova.cpuset import CpusetTextError, parse_cpuset

cpu_sets = st.frozensets(st.integers(0, 200))


@given(cpu_sets)
def test_a_set_written_as_text_reads_back_the_same(cpus):
    assert frozenset(parse_cpuset(format_cpu_list(cpus))) == cpus


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 10))))
def test_a_text_takes_all_it_names_minus_all_it_takes_out(pieces):
    text = ",".join(f"{'^' * out}{first}-{first + more}" for out, first, more in pieces)
    taken, out = (
        {cpu for is_out, first, more in pieces for cpu in range(first, first + more + 1) if is_out == side}
        for side in (False, True)
    )
    assert list(parse_cpuset(text)) == sorted(taken - out)


@given(cpu_sets, cpu_sets)
def test_sets_subtract_and_intersect_like_sets(left, right):
    one, other = (parse_cpuset(format_cpu_list(cpus)) for cpus in (left, right))
    assert frozenset(one.without(other)) == left - right
    assert frozenset(one & other) == left & right


@given(st.text(alphabet="0123456789-^, ax\n", max_size=30))
def test_any_text_is_either_a_set_or_refused(text):
    try:
        cpus = parse_cpuset(text)
    except CpusetTextError:
        return
    assert parse_cpuset(str(cpus)) == cpus


def test_a_text_that_names_a_billion_billion_cpus_costs_nothing():
    cpus = parse_cpuset("0-999999999999999999,^5-999999999999999998")
    assert str(cpus) == "0-4,999999999999999999"
    assert cpus.highest == 999999999999999999


def walked(sizes, shared, dedicated):
    """The rule word for word: one walk, one token after the other."""
    held = ["" for _ in sizes]
    turn = 0
    for token in "V" * shared + "P" * dedicated:
        while len(held[turn % len(sizes)]) == sizes[turn % len(sizes)]:
            turn += 1
        held[turn % len(sizes)] += token
        turn += 1
    return [(tokens.count("V"), tokens.count("P")) for tokens in held]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_dealing_equals_the_walk_of_single_tokens(sizes, data):
    shared = data.draw(st.integers(0, sum(sizes)))
    dedicated = sum(sizes) - shared
    assert deal(sizes, shared, dedicated) == walked(sizes, shared, dedicated)
