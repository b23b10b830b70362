"""Each extra spec is decided, concerns the guest only, or is named in the answer."""

import re
from pathlib import Path

import pytest

from placement.flavors.nova.extra_spec_rules import (
    GUEST_ONLY,
    KNOWN_EXTRA_SPECS,
    UNDECIDED,
    extra_spec_fault,
    ignored_extra_specs,
)
from placement.flavors.nova.flavor import Flavor, Options
from placement.flavors.nova.translation import translate, translation_document

ROOT = Path(__file__).resolve().parents[4]
UNDECIDED_SPECS = {
    "pci_passthrough:alias": "a100:2",
    "accel:device_profile": "fpga",
    "aggregate_instance_extra_specs:ssd": "true",
    "capabilities:cpu_info:vendor": "Intel",
    "vmware:hw_version": "vmx-13",
    "powervm:srr_capability": "true",
    "ssd": "true",
    "hw:mem_page_size": "1GB",
    "hw:pci_numa_affinity_policy": "required",
    "hw:virtio_packed_ring": "true",
    "hw:viommu_model": "auto",
    "hw:sound_model": "virtio",
    "hw:usb_model": "qemu-xhci",
    "hw:ephemeral_encryption": "yes",
    "hw:ephemeral_encryption_format": "luks",
    "hw:tpm_secret_security": "host",
}
OF_GUESTS = {
    "quota:cpu_shares": "1024",
    "quota:disk_read_iops_sec": "500",
    "quota:vif_outbound_peak": "1000",
    "quota:memory_shares_level": "high",
    "hw_rng:allowed": "True",
    "hw_video:ram_max_mb": "64",
    "hide_hypervisor_id": "true",
    "hw:cpu_max_sockets": "2",
    "hw:watchdog_action": "reset",
    "hw:pmu": "false",
}
UNKNOWN = {
    "hw:nothing_like_it": "1",
    "os:nothing_like_it": "1",
    "quota:zzzzzzzzzzzzzzzz": "1",
    "pci_passthrough:zzzzzzzzzzzzzzzzzz": "1",
    "billing:price": "3",
    ":category": "large",
}


def ignored(specs, **options):
    return translation_document(translate(Flavor(2, 512, 1, extra_specs=specs), options=Options(**options)))[
        "ignored"
    ]


@pytest.mark.parametrize("key", UNDECIDED_SPECS)
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_decided_is_said_with_what_it_asks_of_hosts(key, strict):
    (said,) = ignored({key: UNDECIDED_SPECS[key]}, strict=strict)
    assert said.startswith(f"{key}: not decided here: whether ")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hw:mem_page_size", "small"),
        ("hw:pci_numa_affinity_policy", "preferred"),
        ("hw:virtio_packed_ring", "no"),
        ("hw:ephemeral_encryption", "false"),
        ("pci_passthrough:alias", ""),
    ],
)
def test_values_that_ask_for_nothing_are_not_named(key, text):
    assert ignored({key: text}) == []


@pytest.mark.parametrize("key", OF_GUESTS)
def test_what_concerns_the_guest_only_is_not_named(key):
    assert ignored({key: OF_GUESTS[key]}) == []


@pytest.mark.parametrize("key", UNKNOWN)
def test_what_nova_does_not_know_is_named_as_such(key):
    (said,) = ignored({key: UNKNOWN[key]})
    assert said == f"{key}: there is no such extra spec"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("pci_passthru:alias", "pci_passthrough:alias"),
        ("pci_passthrough_alias", "pci_passthrough:alias"),
        ("group_polcy", "group_policy"),
        ("accel:device_profil", "accel:device_profile"),
        ("quota:cpu_share", "quota:cpu_shares"),
    ],
)
def test_what_is_near_to_a_known_one_is_suggested(key, meant):
    (said,) = ignored({key: "none"})
    assert said == f"{key}: there is no such extra spec; did you mean {meant}?"


def test_many_extra_specs_are_named_without_being_compared():
    many = {f"unknown{number}:x": "1" for number in range(2000)}
    assert len(ignored_extra_specs(many)) == len(many)


def test_each_known_extra_spec_has_a_row_in_the_reference():
    reference = (ROOT / "docs/reference/nova-flavors.md").read_text()
    named = set(re.findall(r"`([^`\s]+)`", reference))
    patterns = {name.replace("<", "").replace(">", "") for name in named}
    for key in (*UNDECIDED, *GUEST_ONLY):
        namespace = f"{key.partition(':')[0]}:*"
        assert key in patterns or namespace in patterns, key


def test_strict_requests_take_what_is_not_decided():
    for key, text in {**UNDECIDED_SPECS, **OF_GUESTS}.items():
        assert extra_spec_fault(key, text, KNOWN_EXTRA_SPECS) is None
