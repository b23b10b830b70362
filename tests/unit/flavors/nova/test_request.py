import pytest

from tests.unit.flavors.nova.samples import problem_codes, translated


def base(*arguments, **fields):
    return dict(translated(*arguments, **fields).groups[""].resources)


@pytest.mark.parametrize(("swap_mb", "disk_gb"), [(0, 6), (1, 7), (1024, 7), (1025, 8)])
def test_the_disk_is_root_ephemeral_and_swap_rounded_up(swap_mb, disk_gb):
    assert base(ephemeral_gb=5, swap_mb=swap_mb)["DISK_GB"] == disk_gb


def test_booting_from_a_volume_leaves_the_root_disk_out():
    assert base(options={"boot_from_volume": True}, ephemeral_gb=5)["DISK_GB"] == 5
    assert "DISK_GB" not in base(options={"boot_from_volume": True})


@pytest.mark.parametrize("key", ["resources:{}", "resources86:{}", "resources_x:{}"])
@pytest.mark.parametrize("name", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_an_amount_of_zero_in_any_group_removes_the_default(key, name):
    defaults = {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 1}
    del defaults[name]
    assert base({key.format(name): "0"}) == defaults


def test_an_ignored_amount_does_not_count_as_a_mention():
    assert base({"resources1:MEMORY_MB": "bogus"})["MEMORY_MB"] == 1024


def test_a_group_of_zeros_vanishes_and_does_not_count_for_the_policy():
    translation = translated({"resources1:VGPU": "1", "resources2:VGPU": "0"})
    assert sorted(translation.groups) == ["", "1"]


def test_several_suffixed_groups_need_a_policy():
    specs = {"resources1:VGPU": "1", "resources2:VGPU": "1"}
    assert problem_codes(specs) == ["group_policy_required"]
    assert translated({**specs, "group_policy": "isolate"}).group_policy == "isolate"


@pytest.mark.parametrize("specs", [{}, {"resources1:VGPU": "1"}])
def test_a_policy_is_passed_on_without_need(specs):
    assert translated({**specs, "group_policy": "none"}).group_policy == "none"


def test_traits_alone_are_an_error_in_any_group():
    nothing = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}
    assert problem_codes({"trait1:CUSTOM_A": "required"}) == ["traits_without_resources"]
    assert problem_codes({**nothing, "trait:CUSTOM_A": "forbidden"}) == ["traits_without_resources"]
    assert problem_codes(nothing) == ["no_resources"]


def test_a_trait_required_and_forbidden_in_one_group_is_a_conflict():
    specs = {"trait:COMPUTE_SECURITY_UEFI_SECURE_BOOT": "forbidden", "os:secure_boot": "required"}
    assert problem_codes(specs) == ["trait_conflict"]
    assert problem_codes({"trait:CUSTOM_A": "forbidden"}, {"trait:CUSTOM_A": "required"}) == [
        "trait_conflict"
    ]
    apart = {"trait:CUSTOM_A": "forbidden", "trait1:CUSTOM_A": "required", "resources1:VGPU": "1"}
    assert problem_codes(apart) == []


def test_the_pcpu_fallback_forgets_the_policy_keys():
    specs = {
        "hw:cpu_policy": "dedicated",
        "hw:cpu_thread_policy": "isolate",
        "hw:emulator_threads_policy": "isolate",
        "trait:CUSTOM_A": "required",
    }
    translation = translated(specs, options={"pcpu_fallback": True, "limit": 5})
    assert translation.fallback_querystring == (
        "limit=5&required=CUSTOM_A&resources=DISK_GB%3A1%2CMEMORY_MB%3A1024%2CVCPU%3A4"
    )


@pytest.mark.parametrize(
    "specs",
    [
        {"resources:PCPU": "4"},
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"},
        {"hw:cpu_policy": "shared"},
        {},
    ],
)
def test_there_is_a_fallback_only_for_dedicated_by_a_policy_key(specs):
    assert translated(specs, options={"pcpu_fallback": True}).fallback_querystring is None


def test_there_is_no_fallback_that_asks_for_nothing():
    specs = {
        "hw:cpu_policy": "dedicated",
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0",
    }
    assert translated(specs, options={"pcpu_fallback": True}).fallback_querystring is None
    assert translated(specs).querystring == "resources=PCPU%3A4"
