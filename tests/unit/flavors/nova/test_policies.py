import pytest

from placement.flavors.nova.cpu_plan import CPU_POLICY, THREAD_POLICY
from placement.flavors.nova.errors import Problems
from tests.unit.flavors.nova.samples import problem_codes, translated

X = "conflict"

CPU_TABLE = {
    "dedicated": {"dedicated": "dedicated", "mixed": X, "shared": X, None: "dedicated"},
    "mixed": {"dedicated": "dedicated", "mixed": "mixed", "shared": X, None: "mixed"},
    "shared": {"dedicated": "dedicated", "mixed": X, "shared": "shared", None: "shared"},
    None: {"dedicated": "dedicated", "mixed": "mixed", "shared": "shared", None: None},
}
THREAD_TABLE = {
    None: {None: None, "prefer": "prefer", "isolate": "isolate", "require": "require"},
    "prefer": {None: "prefer", "prefer": "prefer", "isolate": X, "require": X},
    "isolate": {None: "isolate", "prefer": "prefer", "isolate": "isolate", "require": X},
    "require": {None: "require", "prefer": "prefer", "isolate": X, "require": "require"},
}


def cells(table):
    return [(flavor, image, outcome) for image, row in table.items() for flavor, outcome in row.items()]


def settled(table, flavor, image):
    problems = Problems()
    policy = table.settle(flavor, image, problems)
    return problems.found[0].code if len(problems) else policy


@pytest.mark.parametrize(("flavor", "image", "outcome"), cells(CPU_TABLE))
def test_flavor_and_image_settle_the_cpu_policy(flavor, image, outcome):
    assert settled(CPU_POLICY, flavor, image) == ("cpu_policy_conflict" if outcome is X else outcome)


@pytest.mark.parametrize(("flavor", "image", "outcome"), cells(THREAD_TABLE))
def test_flavor_and_image_settle_the_thread_policy(flavor, image, outcome):
    expected = "cpu_thread_policy_conflict" if outcome is X else outcome
    assert settled(THREAD_POLICY, flavor, image) == expected


@pytest.mark.parametrize(("flavor", "image"), [("foo", None), ("dedicated", "foo"), ("refused", "mixed")])
def test_an_unknown_cpu_policy_on_either_side_is_refused_before_the_table(flavor, image):
    assert settled(CPU_POLICY, flavor, image) == "cpu_policy_invalid"


@pytest.mark.parametrize(("flavor", "image"), [("foo", None), ("prefer", "foo"), ("Prefer", "isolate")])
def test_an_unknown_thread_policy_on_either_side_is_refused_before_the_table(flavor, image):
    assert settled(THREAD_POLICY, flavor, image) == "cpu_thread_policy_invalid"


def test_an_empty_policy_is_no_policy():
    specs = {"hw:cpu_policy": "", "hw:cpu_thread_policy": "", "hw:emulator_threads_policy": ""}
    assert translated(specs, {"hw_cpu_policy": ""}).cpu_policy is None


@pytest.mark.parametrize(
    "amounts", [{"resources:VCPU": "1"}, {"resources1:PCPU": "4"}, {"resources_a:VCPU": "1"}]
)
@pytest.mark.parametrize("policy", ["dedicated", "shared"])
def test_a_policy_key_does_not_go_with_explicit_amounts(policy, amounts):
    assert problem_codes({"hw:cpu_policy": policy, **amounts}) == ["cpu_resources_conflict"]


def test_a_policy_key_overwrites_explicit_amounts_of_zero():
    specs = {"hw:cpu_policy": "dedicated", "resources:PCPU": "0", "resources:VCPU": "0"}
    assert translated(specs).groups[""].resources["PCPU"] == 4


def test_explicit_shared_cpus_need_not_equal_the_vcpus():
    translation = translated({"resources:VCPU": "2"})
    assert translation.cpu_policy == "shared"
    assert translation.groups[""].resources["VCPU"] == 2


@pytest.mark.parametrize(("pcpu", "emulator"), [("4", "share"), ("5", "isolate"), ("4", "")])
def test_explicit_dedicated_cpus_cover_the_guest_and_its_emulator(pcpu, emulator):
    specs = {"resources:PCPU": pcpu, "hw:emulator_threads_policy": emulator}
    assert translated(specs).cpu_policy == "dedicated"
    assert problem_codes({**specs, "resources:PCPU": "3"}) == ["cpu_resources_mismatch"]


def test_both_explicit_amounts_make_a_mixed_policy_over_groups_with_any_suffix():
    specs = {"resources_a:VCPU": "1", "resources_b:PCPU": "3", "group_policy": "none"}
    translation = translated(specs)
    assert translation.cpu_policy == "mixed"
    assert translation.dedicated_cpus == "1-3"


def test_the_emulator_may_not_take_the_only_dedicated_cpu():
    specs = {"resources:VCPU": "4", "resources:PCPU": "1", "hw:emulator_threads_policy": "isolate"}
    assert problem_codes(specs) == ["cpu_resources_mismatch"]


@pytest.mark.parametrize(
    "source", [{"hw:cpu_dedicated_mask": "1-3"}, {"hw:cpu_realtime": "1", "hw:cpu_realtime_mask": "^0"}]
)
def test_a_mixed_policy_from_amounts_takes_no_mask(source):
    assert problem_codes({"resources:VCPU": "1", "resources:PCPU": "3", **source}) == [
        "cpu_resources_conflict"
    ]


def test_one_zero_amount_removes_every_cpu():
    translation = translated({"resources:PCPU": "0"})
    assert translation.cpu_policy is None
    assert translation.groups[""].resources == {"MEMORY_MB": 1024, "DISK_GB": 1}


@pytest.mark.parametrize("policy", ["shared", ""])
def test_isolated_emulator_threads_need_pinning_and_shared_ones_do_not(policy):
    isolated = {"hw:cpu_policy": policy, "hw:emulator_threads_policy": "isolate"}
    assert problem_codes(isolated) == ["emulator_policy_needs_pinning"]
    assert problem_codes({**isolated, "hw:emulator_threads_policy": "share"}) == []


@pytest.mark.parametrize("policy", ["prefer", "isolate", "require"])
def test_any_thread_policy_needs_pinning(policy):
    assert problem_codes({"hw:cpu_thread_policy": policy}) == ["cpu_thread_policy_needs_pinning"]
    assert problem_codes({}, {"hw_cpu_thread_policy": policy}) == ["cpu_thread_policy_needs_pinning"]


@pytest.mark.parametrize(
    ("policy", "traits"),
    [("prefer", ()), ("isolate", ("!HW_CPU_HYPERTHREADING",)), ("require", ("HW_CPU_HYPERTHREADING",))],
)
def test_a_thread_policy_becomes_a_trait_of_the_base_group(policy, traits):
    translation = translated({"resources:PCPU": "4", "hw:cpu_thread_policy": policy})
    assert translation.groups[""].traits == traits
    assert translation.thread_policy == policy


@pytest.mark.parametrize(
    ("specs", "image", "policy"),
    [
        ({"trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}, "isolate"),
        ({}, {"trait:HW_CPU_HYPERTHREADING": "required"}, "require"),
        (
            {"trait1:HW_CPU_HYPERTHREADING": "forbidden", "resources1:VGPU": "1"},
            {"trait:HW_CPU_HYPERTHREADING": "required"},
            "isolate",
        ),
    ],
)
def test_the_hyperthreading_trait_counts_as_a_thread_policy(specs, image, policy):
    assert translated({"hw:cpu_policy": "dedicated", **specs}, image).thread_policy == policy
    assert problem_codes(specs, image) == ["cpu_thread_policy_needs_pinning"]
    keyed = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "prefer", **specs}
    assert problem_codes(keyed, image) == ["hyperthreading_conflict"]
