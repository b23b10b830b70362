"""CPU lists in Linux syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.domain.errors import BadRequest
from placement.engine.numa.cpus import (
    CpuListError,
    CpuTopology,
    LogicalCpu,
    format_cpu_list,
    layout_of,
    parse_cpu_list,
    parse_typed_cpu_list,
)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("5", {5}),
        ("3-5,1-2", {1, 2, 3, 4, 5}),
        ("0-3,2,2,8", {0, 1, 2, 3, 8}),
        ("7-3", set()),
        ("9999-3,1", {1}),
        ("007", {7}),
        ("5000", {5000}),
        ("4095-4096", {4095, 4096}),
    ],
)
def test_a_list_names_ids_and_inclusive_ranges_in_any_order(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", [*" ,-a", "1, 2", "1,", "-1", "+1", "1-", "1-2-3", "1_0", "\u0663", "0-4097", "0x1", "9" * 5000]
)
def test_anything_else_is_refused_as_a_bad_request_and_a_value_error(text):
    with pytest.raises(CpuListError) as refusal:
        parse_cpu_list(text)
    assert isinstance(refusal.value, BadRequest)
    assert isinstance(refusal.value, ValueError)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("cpus", "text"),
    [([], ""), ([5], "5"), ([8, 1, 2, 3, 5, 6], "1-3,5-6,8"), ([0, 1, 2, 3, 8, 10, 11, 11], "0-3,8,10-11")],
)
def test_the_canonical_list_is_ascending_with_neighbours_joined(cpus, text):
    assert format_cpu_list(cpus) == text
    with pytest.raises(CpuListError, match="-1 is not a CPU id"):
        format_cpu_list([*cpus, -1])


@given(st.frozensets(st.integers(0, 4096)))
def test_reading_what_was_written_gives_the_same_cpus(cpus):
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@pytest.mark.parametrize("read", [parse_cpu_list, parse_typed_cpu_list])
@pytest.mark.parametrize("part", ["0-4096", "0-7"])
def test_a_list_names_no_more_ids_than_several_times_all_there_are(read, part):
    """A tenant writes such lists into its pods: each takes as long as it names ids."""
    assert read(",".join(["0-4096"] * 4)) == set(range(4097))
    with pytest.raises(CpuListError, match="names more than 16388 CPU ids"):
        read(",".join([part] * 20_000))


def test_a_part_is_shown_in_brief_when_it_names_no_cpu():
    with pytest.raises(CpuListError, match="names no CPU") as refusal:
        parse_typed_cpu_list("1," + " " * 100_000)
    assert len(str(refusal.value)) < 200


def test_reports_of_a_host_are_equal_however_their_rows_were_ordered():
    cpus = [LogicalCpu(cpu, cpu % 4, cpu % 2, 0) for cpu in range(8)]
    topology = CpuTopology(tuple(cpus))
    for shuffled in (cpus[::-1], [*cpus[3:], *cpus[:3]]):
        other = CpuTopology(tuple(shuffled))
        assert other == topology
        assert list(other.by_cpu) == list(range(8))
        assert other.cores == topology.cores
        assert all(list(threads) == sorted(threads) for threads in other.cores.values())
        assert layout_of(other) == layout_of(topology)
