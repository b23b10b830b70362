import pytest

from placement.flavors.nova.extra_specs import read_extra_specs
from tests.unit.flavors.nova.samples import problem_codes, translated

LONGEST = "a" * 64


@pytest.mark.parametrize(
    ("key", "suffix"),
    [
        ("resources:VGPU", ""),
        ("resources1:VGPU", "1"),
        ("resources_gpu-A:VGPU", "_gpu-A"),
        (f"resources{LONGEST}:VGPU", LONGEST),
        ("resourcess:VGPU", "s"),
    ],
)
def test_a_suffix_is_all_between_the_keyword_and_the_colon(key, suffix):
    assert read_extra_specs({key: "1"}).groups[suffix].resources == {"VGPU": 1}


def test_the_plural_of_trait_is_the_group_with_suffix_s():
    assert read_extra_specs({"traits:CUSTOM_X": "required"}).groups["s"].required == {"CUSTOM_X"}


@pytest.mark.parametrize(
    "key",
    [
        f"resources{LONGEST}a:VGPU",
        "resources_*5:VGPU",
        "traitFoo$:X",
        "resources",
        "some:bogus",
        "trait:",
        "trait:!X",
    ],
)
def test_a_key_that_does_not_match_in_full_is_ignored_silently(key):
    explicit = read_extra_specs({key: "1"})
    assert explicit.groups == {}
    assert explicit.warnings == ()


@pytest.mark.parametrize(
    ("key", "text", "warning"),
    [
        ("resources:NOPE", "1", "resource_class_ignored"),
        ("resources:NET_EGRESS_BYTES_SEC", "1", "resource_class_ignored"),
        ("resources:", "1", "resource_class_ignored"),
        ("resources:CUSTOM_A:1,VCPU", "1", "resource_class_ignored"),
        ("resources:VGPU", "-1", "amount_ignored"),
        ("resources:VGPU", "x", "amount_ignored"),
        ("resources:VGPU", "", "amount_ignored"),
        ("resources:VGPU", "1.5", "amount_ignored"),
        ("resources:VGPU", "9" * 5000, "amount_ignored"),
        ("trait:CUSTOM_X", "preferred", "trait_value_ignored"),
        ("group_policy", "spread", "group_policy_ignored"),
        ("group_policy", "", "group_policy_ignored"),
    ],
)
def test_a_bad_entry_is_ignored_with_a_warning_and_an_error_in_strict_mode(key, text, warning):
    assert translated({key: text}).warnings == (warning,)
    assert problem_codes({key: text}, options={"strict": True}) == ["extra_spec_invalid"]


def test_warnings_are_sorted_and_keep_repeats():
    specs = {"resources:NOPE": "1", "resources1:VGPU": "x", "resources:VGPU": "-1"}
    assert translated(specs).warnings == ("amount_ignored", "amount_ignored", "resource_class_ignored")


def test_a_class_or_trait_may_appear_in_several_groups():
    explicit = read_extra_specs(
        {"resources1:VGPU": "1", "resources2:VGPU": "2", "trait1:A": "required", "trait2:A": "forbidden"}
    )
    assert {suffix: dict(group.resources) for suffix, group in explicit.groups.items()} == {
        "1": {"VGPU": 1},
        "2": {"VGPU": 2},
    }
    assert explicit.groups["2"].forbidden == {"A"}


def test_an_image_requires_traits_of_the_base_group_and_cannot_forbid():
    image = {"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "trait1:CUSTOM_C": "required"}
    assert translated({}, image).groups[""].traits == ("CUSTOM_A",)
