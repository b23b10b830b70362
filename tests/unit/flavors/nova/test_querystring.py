from urllib.parse import parse_qsl

import pytest

from tests.unit.flavors.nova.samples import translated


def test_pairs_and_entries_are_sorted_as_text_and_form_encoded():
    specs = {
        "resources3:VCPU": "2",
        "resources24:SRIOV_NET_VF": "2",
        "trait3:CUSTOM_SILVER": "required",
        "trait3:CUSTOM_GOLD": "required",
        "trait3:CUSTOM_A": "forbidden",
        "group_policy": "none",
        "resources:MEMORY_MB": "0",
    }
    assert translated(specs, options={"limit": 1000}).querystring == (
        "group_policy=none&limit=1000&required3=CUSTOM_GOLD%2CCUSTOM_SILVER%2C%21CUSTOM_A"
        "&resources=DISK_GB%3A1&resources24=SRIOV_NET_VF%3A2&resources3=VCPU%3A2"
    )


def test_characters_that_mean_something_in_a_query_are_encoded():
    query = translated({"trait:CUSTOM_A&B=C": "required"}).querystring
    assert dict(parse_qsl(query))["required"] == "CUSTOM_A&B=C"


@pytest.mark.parametrize(
    ("specs", "options", "microversion"),
    [
        ({}, {}, "1.10"),
        ({}, {"limit": 1}, "1.16"),
        ({"trait:A": "required"}, {}, "1.17"),
        ({"trait:A": "forbidden"}, {}, "1.22"),
        ({"resources1:VGPU": "1"}, {}, "1.25"),
        ({"group_policy": "none"}, {}, "1.25"),
        ({"resources01:VGPU": "1"}, {}, "1.33"),
        ({"resources_a:VGPU": "1"}, {}, "1.33"),
    ],
)
def test_the_microversion_is_the_lowest_that_takes_the_query(specs, options, microversion):
    assert translated(specs, options=options).microversion == microversion
