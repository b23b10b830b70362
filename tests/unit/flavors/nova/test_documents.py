import json

import pytest

from placement.flavors.nova import FlavorRefused, translate_document, translation_document

FLAVOR = {"vcpus": 2, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0, "swap_mb": 0, "extra_specs": {}}


def problems(document):
    with pytest.raises(FlavorRefused) as refused:
        translate_document(document)
    return [tuple(problem) for problem in refused.value.problems]


def test_a_request_becomes_an_answer_of_plain_json():
    document = {
        "flavor": {
            **FLAVOR,
            "extra_specs": {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
        },
        "image": {"trait:CUSTOM_A": "required"},
        "options": {"pcpu_fallback": True},
    }
    answer = translation_document(translate_document(document))
    assert json.loads(json.dumps(answer)) == {
        "groups": {
            "": {
                "resources": {"PCPU": 2, "MEMORY_MB": 512, "DISK_GB": 1},
                "required": ["CUSTOM_A"],
                "forbidden": ["HW_CPU_HYPERTHREADING"],
            }
        },
        "group_policy": None,
        "root_required": [],
        "same_subtree": [],
        "querystring": "required=CUSTOM_A%2C%21HW_CPU_HYPERTHREADING"
        "&resources=DISK_GB%3A1%2CMEMORY_MB%3A512%2CPCPU%3A2",
        "fallback_querystring": "required=CUSTOM_A&resources=DISK_GB%3A1%2CMEMORY_MB%3A512%2CVCPU%3A2",
        "microversion": "1.22",
        "cpu_policy": "dedicated",
        "thread_policy": "isolate",
        "cells": [{"id": 0, "cpuset": [], "pcpuset": [0, 1], "memory": 512}],
        "dedicated_cpus": "0-1",
        "warnings": [],
    }


def test_only_vcpus_and_memory_are_a_must():
    answer = translation_document(translate_document({"flavor": {"vcpus": 1, "memory_mb": 1}}))
    assert answer["querystring"] == "resources=MEMORY_MB%3A1%2CVCPU%3A1"
    assert answer["cells"] is None
    assert [message for _, message in problems({})] == [
        "flavor.vcpus: is missing",
        "flavor.memory_mb: is missing",
    ]


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_request_is_an_object(document):
    assert problems(document)[0] == ("flavor_invalid", "request: must be an object")


@pytest.mark.parametrize(
    ("part", "value", "code"),
    [
        ("flavor", [], "flavor_invalid"),
        ("image", [], "image_invalid"),
        ("options", "", "options_invalid"),
        ("flavor", {**FLAVOR, "vcpu": 1}, "flavor_invalid"),
        ("options", {"fast": True}, "options_invalid"),
        ("flavour", {}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "vcpus": 0}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "vcpus": True}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "vcpus": "2"}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "vcpus": 2.0}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "vcpus": 10**9}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "memory_mb": -1}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "memory_mb": 10**5000}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "swap_mb": None}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "extra_specs": None}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "extra_specs": {"hw:numa_nodes": 2}}, "flavor_invalid"),
        ("flavor", {**FLAVOR, "extra_specs": {"trait:\ud800": "required"}}, "flavor_invalid"),
        ("image", {"hw_cpu_policy": ["dedicated"]}, "image_invalid"),
        ("image", {1: "x"}, "image_invalid"),
        ("options", {"limit": 0}, "options_invalid"),
        ("options", {"strict": "yes"}, "options_invalid"),
        ("options", {"numa": "round"}, "options_invalid"),
        ("options", {"numa": {}}, "options_invalid"),
        ("options", {"device_cells": []}, "options_invalid"),
        ("options", {"device_cells": {1: 0}}, "options_invalid"),
        ("options", {"device_cells": {"_a": "0"}}, "options_invalid"),
    ],
)
def test_odd_input_is_refused_with_a_clear_code(part, value, code):
    assert problems({"flavor": FLAVOR, part: value})[0][0] == code


def test_the_message_about_an_odd_extra_spec_names_it():
    document = {"flavor": {**FLAVOR, "extra_specs": {"hw:numa_nodes": 2}}}
    assert problems(document) == [("flavor_invalid", "hw:numa_nodes: must be text")]
