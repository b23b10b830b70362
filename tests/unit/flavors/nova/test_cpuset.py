from hypothesis import given
from hypothesis import strategies as st

from placement.flavors.nova.cpuset import CpuSet, CpusetTextError, format_cpuset, parse_cpuset

cpu_sets = st.frozensets(st.integers(0, 200))


@given(cpu_sets)
def test_a_set_written_as_text_reads_back_the_same(cpus):
    assert frozenset(parse_cpuset(format_cpuset(cpus))) == cpus


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
    assert frozenset(CpuSet.of(left).without(CpuSet.of(right))) == left - right
    assert frozenset(CpuSet.of(left) & CpuSet.of(right)) == left & right


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
