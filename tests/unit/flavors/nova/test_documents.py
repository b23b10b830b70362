import json

import pytest

from placement.flavors.nova.problems import FlavorRefused
from placement.flavors.nova.translation import translate_document, translation_document

FLAVOR = {"vcpus": 2, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0, "swap_mb": 0, "extra_specs": {}}


def problems(document):
    with pytest.raises(FlavorRefused) as refused:
        translate_document(document)
    return [(finding.code, str(finding)) for finding in refused.value.findings]


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
        "ignored": [],
    }


def test_only_vcpus_and_memory_are_a_must():
    answer = translation_document(translate_document({"flavor": {"vcpus": 1, "memory_mb": 1}}))
    assert answer["querystring"] == "resources=MEMORY_MB%3A1%2CVCPU%3A1"
    assert answer["cells"] is None
    assert [message for _, message in problems({})] == [
        "flavor.vcpus: is missing",
        "flavor.memory_mb: is missing",
    ]


WRONG = {
    "flavor": [
        [],
        {**FLAVOR, "vcpu": 1},
        *({**FLAVOR, "vcpus": vcpus} for vcpus in (0, True, "2", 2.0, 10**9)),
        *({**FLAVOR, "memory_mb": memory} for memory in (-1, 10**5000)),
        *({**FLAVOR, name: None} for name in ("swap_mb", "extra_specs")),
        {**FLAVOR, "extra_specs": {"trait:\ud800": "required"}},
    ],
    "image": [[], {"hw_cpu_policy": ["dedicated"]}, {1: "x"}],
    "options": [
        "",
        *({name: value} for name, value in (("fast", True), ("limit", 0), ("strict", "yes"))),
        *({"numa": value} for value in ("round", {})),
        *({"device_cells": cells} for cells in ([], {1: 0}, {"_a": "0"})),
    ],
}


@pytest.mark.parametrize("part", WRONG)
def test_odd_input_is_refused_with_a_clear_code(part):
    for value in WRONG[part]:
        assert problems({"flavor": FLAVOR, part: value})[0][0] == f"{part}_invalid", value


def test_a_request_is_an_object_with_known_members_and_an_odd_extra_spec_is_named():
    for document in (None, [], "x", 1):
        assert problems(document)[0] == ("flavor_invalid", "request: must be an object")
    assert problems({"flavor": FLAVOR, "flavour": {}})[0][0] == "flavor_invalid"
    document = {"flavor": {**FLAVOR, "extra_specs": {"hw:numa_nodes": 2}}}
    assert problems(document) == [("flavor_invalid", "hw:numa_nodes: must be text")]
