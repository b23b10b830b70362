"""Promises that hold for every flavor, drawn from legal, half legal and hostile pieces."""

import json
from contextlib import suppress
from urllib.parse import parse_qsl

from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.cpus import format_cpu_list
from placement.flavors.nova.cpuset import parse_cpuset
from placement.flavors.nova.flavor import Flavor, Options
from placement.flavors.nova.openstack_json import flavor_from_openstack_json, image_from_openstack_json
from placement.flavors.nova.problems import FlavorRefused
from placement.flavors.nova.translation import translate, translate_document, translation_document

MASKS = ["", "0", "^0", "0-1", "1-2,^1", " ^1", "^8", "0-3", "x", "3-1", "0-99999999999"]
POLICIES = ["dedicated", "shared", "mixed", "", "foo"]
THREADS = ["prefer", "isolate", "require", "", "foo"]
PIECES = {
    "hw:cpu_policy": POLICIES,
    "hw:cpu_thread_policy": THREADS,
    "hw:emulator_threads_policy": ["isolate", "share", "", "foo"],
    "hw:cpu_dedicated_mask": MASKS,
    "hw:cpu_realtime": ["yes", "no"],
    "hw:cpu_realtime_mask": MASKS,
    "hw:numa_nodes": ["1", "2", "4", "02", "0", ""],
    "hw:numa_cpus.0": ["0-1", "0", "0-3", "^0", "x"],
    "hw:numa_cpus.1": ["2-3", "1-7", ""],
    "hw:numa_mem.0": ["512", "1024", "x"],
    "hw:numa_mem.1": ["512", "0"],
    "hw:mem_page_size": ["any", "2048", "2M"],
    "hw:pmem": ["4GB,4GB", " , "],
    "hw:mem_encryption": ["yes", "no"],
    "os:secure_boot": ["required", "zz"],
    "resources:VCPU": ["0", "1", "2", "4", "x"],
    "resources:PCPU": ["0", "1", "2", "3", "4"],
    "resources1:VGPU": ["1", "0", "-1"],
    "resources_a:PCPU": ["2"],
    "resources:MEMORY_MB": ["0", "77"],
    "resources:CUSTOM_X": ["0", "3"],
    "trait:HW_CPU_HYPERTHREADING": ["required", "forbidden", "foo"],
    "trait:CUSTOM_A": ["required", "forbidden"],
    "trait1:CUSTOM_B": ["required"],
    "group_policy": ["none", "isolate", "foo"],
}
IMAGE_PIECES = {
    "hw_cpu_policy": POLICIES,
    "hw_cpu_thread_policy": THREADS,
    "hw_cpu_realtime_mask": MASKS,
    "hw_numa_nodes": ["1", "2"],
    "hw_numa_cpus.0": ["0-1"],
    "hw_mem_page_size": ["2048"],
    "hw_firmware_type": ["uefi"],
    "hw_firmware_stateless": ["true"],
    "trait:CUSTOM_A": ["required"],
}


def some_of(pieces):
    entries = [st.tuples(st.just(key), st.sampled_from(texts)) for key, texts in pieces.items()]
    return st.lists(st.one_of(entries), max_size=6).map(dict)


wild_flavors = st.builds(
    Flavor,
    vcpus=st.integers(1, 9),
    memory_mb=st.sampled_from([0, 512, 1024, 1025]),
    root_gb=st.integers(0, 3),
    ephemeral_gb=st.integers(0, 3),
    swap_mb=st.sampled_from([0, 1, 1024, 1025]),
    extra_specs=some_of(PIECES),
)


@st.composite
def splits(draw):
    """A flavor with even NUMA nodes and a legal CPU split, and its dedicated and emulator CPUs by number."""
    nodes, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    vcpus = nodes * width
    dedicated = draw(st.frozensets(st.integers(0, vcpus - 1), min_size=1))
    isolated = draw(st.booleans())
    specs = {"hw:numa_nodes": str(nodes), "hw:emulator_threads_policy": "isolate" if isolated else "share"}
    if draw(st.booleans()):
        shared = vcpus - len(dedicated)
        specs |= {"resources:VCPU": str(shared), "resources:PCPU": str(len(dedicated) + isolated)}
    elif len(dedicated) == vcpus:
        specs |= {"hw:cpu_policy": "dedicated"}
    else:
        specs |= {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": format_cpu_list(dedicated)}
    return Flavor(vcpus, nodes * 128, draw(st.integers(0, 1)), 0, 0, specs), len(dedicated), int(isolated)


flavors = wild_flavors | splits().map(lambda split: split[0])
options = st.builds(
    Options,
    boot_from_volume=st.booleans(),
    limit=st.sampled_from([None, 7]),
    strict=st.booleans(),
    pcpu_fallback=st.booleans(),
    numa=st.sampled_from(["flat", "granular"]),
    device_cells=st.sampled_from([{}, {}, {"1": 0}, {"_a": 1}]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
hostile_specs = st.dictionaries(
    st.sampled_from([*PIECES, *IMAGE_PIECES, "resources:", "trait:", "hw:", ":"]) | st.text(max_size=12),
    st.text(max_size=12) | st.text(alphabet="0123456789-^, .KMGB", max_size=12) | json_values,
    max_size=6,
)


def outcome(*arguments):
    try:
        return translate(*arguments)
    except FlavorRefused:
        return None


def total(translation, resource_class):
    return sum(group.resources.get(resource_class, 0) for group in translation.groups.values())


def names_no(flavor, *resource_classes):
    return not any(key.endswith(f":{name}") for key in flavor.extra_specs for name in resource_classes)


@given(flavors, some_of(IMAGE_PIECES), options)
def test_translated_totals_equal_the_flavors(flavor, image, chosen):
    translation = outcome(flavor, image, chosen)
    if translation is None:
        return
    if names_no(flavor, "VCPU", "PCPU") or translation.cpu_policy in ("mixed", "dedicated"):
        isolated = flavor.extra_specs.get("hw:emulator_threads_policy") == "isolate"
        assert total(translation, "VCPU") + total(translation, "PCPU") == flavor.vcpus + isolated
    if names_no(flavor, "MEMORY_MB"):
        assert total(translation, "MEMORY_MB") == flavor.memory_mb
    swap_gb = (flavor.swap_mb + 1023) // 1024
    root_gb = 0 if chosen.boot_from_volume else flavor.root_gb
    assert total(translation, "DISK_GB") == root_gb + flavor.ephemeral_gb + swap_gb


@given(splits(), st.sampled_from(["flat", "granular"]))
def test_every_legal_split_is_translated_to_its_very_numbers(split, numa):
    flavor, dedicated, isolated = split
    translation = translate(flavor, None, Options(numa=numa))
    assert total(translation, "VCPU") == flavor.vcpus - dedicated
    assert total(translation, "PCPU") == dedicated + isolated
    assert total(translation, "MEMORY_MB") == flavor.memory_mb
    assert len(list(parse_cpuset(translation.dedicated_cpus))) == dedicated


@given(flavors, some_of(IMAGE_PIECES), options)
def test_cells_hold_every_guest_cpu_once_and_all_the_memory(flavor, image, chosen):
    translation = outcome(flavor, image, chosen)
    if translation is None or translation.cells is None:
        return
    cpus = [cpu for cell in translation.cells for cpu in (*cell.cpuset, *cell.pcpuset)]
    assert sorted(cpus) == list(range(flavor.vcpus))
    assert sum(cell.memory for cell in translation.cells) == flavor.memory_mb
    emulator = flavor.extra_specs.get("hw:emulator_threads_policy") == "isolate"
    dedicated = sum(len(cell.pcpuset) for cell in translation.cells)
    if dedicated:
        assert total(translation, "PCPU") == dedicated + emulator


@given(flavors, some_of(IMAGE_PIECES), options)
def test_the_query_string_says_what_the_groups_say(flavor, image, chosen):
    translation = outcome(flavor, image, chosen)
    if translation is None:
        return
    pairs = parse_qsl(translation.querystring, strict_parsing=True)
    assert pairs == sorted(pairs)
    query = dict(pairs)
    for suffix, group in translation.groups.items():
        amounts = dict(entry.split(":") for entry in query.pop(f"resources{suffix}").split(","))
        assert {name: int(amount) for name, amount in amounts.items()} == group.resources
        assert tuple(filter(None, query.pop(f"required{suffix}", "").split(","))) == group.traits
    assert query.pop("group_policy", None) == translation.group_policy
    assert query.keys() <= {"limit", "root_required", "same_subtree"}


@given(flavors, some_of(IMAGE_PIECES), options)
def test_a_translation_passes_what_placement_checks(flavor, image, chosen):
    translation = outcome(flavor, image, chosen)
    if translation is None:
        return
    assert translation.groups
    assert all(group.resources and min(group.resources.values()) > 0 for group in translation.groups.values())
    assert not any(group.required & group.forbidden for group in translation.groups.values())
    assert len(translation.groups.keys() - {""}) < 2 or translation.group_policy


@given(
    st.fixed_dictionaries(
        {
            "flavor": st.fixed_dictionaries(
                {"vcpus": st.integers(1, 9), "memory_mb": st.integers(0, 9), "extra_specs": hostile_specs}
            )
        },
        optional={"image": hostile_specs, "options": json_values},
    )
    | json_values
)
def test_no_document_makes_the_translation_crash(document):
    with suppress(FlavorRefused):
        json.dumps(translation_document(translate_document(document)))


@given(
    json_values
    | st.dictionaries(st.sampled_from(["vcpus", "ram", "disk", "swap", "properties"]), json_values)
)
def test_no_document_makes_the_reading_of_client_output_crash(document):
    for read in (flavor_from_openstack_json, image_from_openstack_json):
        with suppress(FlavorRefused):
            read(document)
