import pytest

from placement.flavors.nova import (
    Flavor,
    FlavorRefused,
    flavor_from_openstack_json,
    image_from_openstack_json,
)

SHOWN = {
    "OS-FLV-DISABLED:disabled": False,
    "OS-FLV-EXT-DATA:ephemeral": 5,
    "access_project_ids": None,
    "description": None,
    "disk": 10,
    "id": "b2a38cb1-2f1b-4a2b-8f0e-6c8f9e5e7a53",
    "name": "m1.mixed",
    "os-flavor-access:is_public": True,
    "properties": {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3,7"},
    "ram": 2048,
    "rxtx_factor": 1.0,
    "swap": 512,
    "vcpus": 8,
}
FLAVOR = Flavor(8, 2048, 10, 5, 512, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3,7"})


def test_a_flavor_the_client_printed_is_read():
    assert flavor_from_openstack_json(SHOWN) == FLAVOR


def test_the_text_form_of_older_clients_is_read():
    text = "hw:cpu_dedicated_mask='0-3,7', hw:cpu_policy='mixed'"
    assert flavor_from_openstack_json({**SHOWN, "properties": text}) == FLAVOR


def test_a_flavor_of_the_compute_api_is_read():
    answered = {**SHOWN, "extra_specs": SHOWN["properties"]}
    del answered["properties"]
    assert flavor_from_openstack_json(answered) == FLAVOR


def test_no_swap_is_an_empty_text_and_no_properties_are_no_extra_specs():
    bare = {"vcpus": 1, "ram": 64, "disk": 0, "swap": "", "properties": ""}
    assert flavor_from_openstack_json(bare) == Flavor(1, 64)
    assert flavor_from_openstack_json({**bare, "properties": None}) == Flavor(1, 64)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {1: 2},
        {**SHOWN, "vcpus": "8"},
        {**SHOWN, "vcpus": None},
        {**SHOWN, "disk": 1.5},
        {**SHOWN, "ram": True},
        {**SHOWN, "properties": "hw:cpu_policy=mixed"},
        {**SHOWN, "properties": ["a"]},
        {**SHOWN, "properties": {"a": 1}},
    ],
)
def test_anything_else_is_refused(document):
    with pytest.raises(FlavorRefused) as refused:
        flavor_from_openstack_json(document)
    assert refused.value.problems[0].code == "flavor_invalid"


def test_the_texts_among_the_properties_of_an_image_are_read():
    properties = {"hw_cpu_policy": "dedicated", "os_hidden": False, "trait:CUSTOM_A": "required"}
    assert image_from_openstack_json({"name": "x", "properties": properties}) == {
        "hw_cpu_policy": "dedicated",
        "trait:CUSTOM_A": "required",
    }
    assert image_from_openstack_json({"name": "x"}) == {}


@pytest.mark.parametrize("document", [None, {"properties": "a='b'"}])
def test_an_image_that_is_no_object_is_refused(document):
    with pytest.raises(FlavorRefused) as refused:
        image_from_openstack_json(document)
    assert refused.value.problems[0].code == "image_invalid"
