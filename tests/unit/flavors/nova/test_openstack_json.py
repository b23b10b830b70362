import pytest

from placement.flavors.nova.flavor import Flavor
from placement.flavors.nova.openstack_json import flavor_from_openstack_json as flavor_of
from placement.flavors.nova.openstack_json import image_from_openstack_json as image_of
from placement.flavors.nova.problems import FlavorRefused

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


def test_a_flavor_of_any_client_or_the_compute_api_is_read():
    assert flavor_of(SHOWN) == FLAVOR
    text = "hw:cpu_dedicated_mask='0-3,7', hw:cpu_policy='mixed'"
    assert flavor_of({**SHOWN, "properties": text}) == FLAVOR
    answered = {**SHOWN, "extra_specs": SHOWN["properties"]}
    del answered["properties"]
    assert flavor_of(answered) == FLAVOR
    bare = {"vcpus": 1, "ram": 64, "disk": 0, "swap": "", "properties": ""}
    assert flavor_of(bare) == flavor_of({**bare, "properties": None}) == Flavor(1, 64)


ODD = [{"vcpus": "8"}, {"vcpus": None}, {"disk": 1.5}, {"ram": True}]
ODD += [{"properties": properties} for properties in ("hw:cpu_policy=mixed", ["a"], {"a": 1})]


@pytest.mark.parametrize("document", [None, [], {}, {1: 2}, *({**SHOWN, **odd} for odd in ODD)])
def test_anything_else_is_refused(document):
    with pytest.raises(FlavorRefused) as refused:
        flavor_of(document)
    assert refused.value.findings[0].code == "flavor_invalid"


def test_the_texts_among_the_properties_of_an_image_are_read_and_other_images_refused():
    properties = {"hw_cpu_policy": "dedicated", "os_hidden": False, "trait:CUSTOM_A": "required"}
    texts = {"hw_cpu_policy": "dedicated", "trait:CUSTOM_A": "required"}
    assert image_of({"name": "x", "properties": properties}) == texts
    assert image_of({"name": "x"}) == {}
    for document in (None, {"properties": "a='b'"}):
        with pytest.raises(FlavorRefused) as refused:
            image_of(document)
        assert refused.value.findings[0].code == "image_invalid"
