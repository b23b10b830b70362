import pytest

from placement.flavors.nova.cpu_plan import dedicated_mask, realtime_mask
from placement.flavors.nova.errors import Problems
from tests.unit.flavors.nova.samples import problem_codes, translated

REALTIME = {"hw:cpu_realtime": "yes"}


def dedicated(text, vcpus=4):
    problems = Problems()
    cpus = dedicated_mask({"hw:cpu_dedicated_mask": text}, vcpus, problems)
    return sorted(cpus) if cpus else [problem.code for problem in problems.found]


def realtime(extra_specs, image=None, vcpus=4):
    problems = Problems()
    cpus = realtime_mask({**REALTIME, **extra_specs}, image or {}, vcpus, problems)
    return sorted(cpus) if cpus else [problem.code for problem in problems.found]


@pytest.mark.parametrize(
    ("vcpus", "text", "cpus"),
    [
        (8, "0-3,7", [0, 1, 2, 3, 7]),
        (8, "^3-5", [0, 1, 2, 6, 7]),
        (8, " ^3-5", [0, 1, 2, 6, 7]),
        (8, "0-4,^2,6", [0, 1, 3, 4, 6]),
        (4, "^0,2-3,1", [1, 2, 3]),
    ],
)
def test_the_dedicated_mask_names_dedicated_cpus(vcpus, text, cpus):
    assert dedicated(text, vcpus) == cpus


@pytest.mark.parametrize("text", ["^4", "0-3", "0-3,4", "4", "0,^0", " ", "0-99999999999999"])
def test_a_dedicated_mask_leaves_some_in_some_out_and_none_beyond(text):
    assert dedicated(text) == ["dedicated_mask_invalid"]


def test_one_vcpu_never_has_a_dedicated_mask():
    assert dedicated("0", vcpus=1) == ["dedicated_mask_invalid"]


def test_an_empty_dedicated_mask_is_no_mask():
    problems = Problems()
    assert dedicated_mask({"hw:cpu_dedicated_mask": ""}, 4, problems) is None
    assert not len(problems)


@pytest.mark.parametrize("policy", ["dedicated", "shared", ""])
def test_a_dedicated_mask_goes_with_mixed_only(policy):
    specs = {"hw:cpu_policy": policy, "hw:cpu_dedicated_mask": "0"}
    assert problem_codes(specs) == ["dedicated_mask_needs_mixed"]


def test_the_image_realtime_mask_rules_over_the_flavors():
    assert realtime({"hw:cpu_realtime_mask": "^0"}, {"hw_cpu_realtime_mask": "^0-1"}) == [2, 3]


def test_without_a_mask_all_cpus_are_realtime_if_an_emulator_policy_is_set():
    assert realtime({}) == ["realtime_mask_invalid"]
    assert realtime({"hw:emulator_threads_policy": "share"}) == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["0,^0", "^0-3", "0-4", "9"])
def test_a_realtime_mask_has_cpus_and_none_beyond_the_guest(text):
    assert realtime({"hw:cpu_realtime_mask": text}) == ["realtime_mask_invalid"]


@pytest.mark.parametrize("text", ["x", "3-1", "^0-"])
def test_a_mask_that_is_no_cpu_set_text_is_told_apart_from_a_wrong_set(text):
    assert realtime({"hw:cpu_realtime_mask": text}) == ["cpuset_invalid"]
    assert dedicated(text) == ["cpuset_invalid"]


def test_an_empty_realtime_set_is_found_before_a_bad_emulator_policy():
    specs = {"hw:cpu_realtime_mask": "0,^0", "hw:emulator_threads_policy": "foo"}
    assert realtime(specs) == ["realtime_mask_invalid", "emulator_policy_invalid"]


def test_a_bad_emulator_policy_counts_as_set_for_the_realtime_mask():
    assert problem_codes({**REALTIME, "hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "foo"}) == [
        "emulator_policy_invalid"
    ]


def test_a_realtime_mask_is_not_read_while_realtime_is_off():
    assert problem_codes({"hw:cpu_realtime_mask": "x"}) == []


@pytest.mark.parametrize("policy", ["shared", ""])
def test_realtime_needs_pinning(policy):
    specs = {**REALTIME, "hw:cpu_policy": policy, "hw:cpu_realtime_mask": "^0"}
    assert problem_codes(specs) == ["realtime_needs_pinning"]


def test_with_dedicated_all_cpus_stay_dedicated_under_a_realtime_mask():
    specs = {**REALTIME, "hw:cpu_policy": "dedicated", "hw:cpu_realtime_mask": "^0"}
    assert translated(specs).dedicated_cpus == "0-3"


def test_with_mixed_the_realtime_cpus_are_the_dedicated_ones():
    specs = {**REALTIME, "hw:cpu_policy": "mixed", "hw:cpu_realtime_mask": "^0"}
    assert translated(specs).dedicated_cpus == "1-3"


def test_mixed_needs_exactly_one_of_the_two_masks():
    mixed = {"hw:cpu_policy": "mixed"}
    both = {**mixed, **REALTIME, "hw:cpu_dedicated_mask": "0", "hw:cpu_realtime_mask": "1"}
    assert problem_codes(mixed) == ["mixed_needs_one_mask"]
    assert problem_codes(both) == ["mixed_needs_one_mask"]
    assert problem_codes({**both, "hw:cpu_realtime": "no"}) == []


@pytest.mark.parametrize("specs", [{"hw:cpu_realtime_mask": "^0"}, {}])
def test_a_realtime_mask_beside_a_dedicated_mask_is_refused_even_without_realtime(specs):
    mixed = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0", **specs}
    image = None if specs else {"hw_cpu_realtime_mask": "^0"}
    assert problem_codes(mixed, image) == ["mixed_needs_one_mask"]
    assert problem_codes({**mixed, "hw:cpu_realtime": "no"}, image) == []


def test_mixed_with_every_cpu_realtime_asks_for_no_vcpu():
    specs = {**REALTIME, "hw:cpu_policy": "mixed", "hw:emulator_threads_policy": "isolate"}
    assert translated(specs).groups[""].resources == {"PCPU": 5, "MEMORY_MB": 1024, "DISK_GB": 1}
