"""Amounts come with the units that people read."""

from __future__ import annotations

import pytest

from placement.pods.state.host import Place
from placement.pods.state.node_info import Overdrawn
from placement.web import units


@pytest.mark.parametrize(
    ("value", "resource_class", "text"),
    [
        (12, "PCPU", "12 CPU"),
        (1536, "MEMORY_MB", "1.5 GiB"),
        (524288, "MEMORY_MB", "512 GiB"),
        (1500, "CUSTOM_NODE_CPU_MILLI", "1.5 CPU"),
        (333, "CUSTOM_CPU_MILLI", "0.33 CPU"),
        (1000000, "DISK_GB", "1\N{NARROW NO-BREAK SPACE}000\N{NARROW NO-BREAK SPACE}000 GiB"),
        (1, "CUSTOM_GPU", "1 piece"),
        (2, "CUSTOM_GPU", "2 pieces"),
        (1, "CUSTOM_PODS", "1 pod"),
        (20000, "NET_BW_EGR_KILOBIT_PER_SEC", "20 Mbit/s"),
        (100, "PCPU", "100 CPU"),
        (0, "PCPU", "0 CPU"),
    ],
)
def test_an_amount_has_its_unit(value: int, resource_class: str, text: str):
    assert units.amount(value, resource_class) == text


def test_parts_of_wholes():
    assert units.share(512, 2048, "MEMORY_MB") == "0.5 of 2 GiB"
    assert (units.share(1, 1, "CUSTOM_GPU"), units.share(1, 2, "CUSTOM_GPU")) == (
        "1 of 1 piece",
        "1 of 2 pieces",
    )
    # What is not all, and not nothing, is not called so.
    assert units.share(524_200, 524_288, "MEMORY_MB") == "511.9 of 512 GiB"
    assert units.share(524_287, 524_288, "MEMORY_MB") == "511.999 of 512 GiB"
    assert units.share(1, 524_288, "MEMORY_MB") == "0.001 of 512 GiB"
    assert units.share(0, 524_288, "MEMORY_MB") == "0 of 512 GiB"
    assert units.share(524_289, 524_288, "MEMORY_MB") == "512.001 of 512 GiB"
    assert units.plain("CUSTOM_INTEL_COM") == "INTEL_COM"
    overdrawn = Overdrawn(Place("", "CUSTOM_BATCH_CPU"), 4000, 0, 3200)
    assert units.in_units(overdrawn) == "pods hold 4 CPU of BATCH_CPU of the host, which offers 3.2 CPU"


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"CUSTOM_NODE_CPU_MILLI": 8000, "CUSTOM_CPU_MILLI": 8000, "PCPU": 8}, "8 CPU"),
        ({"CUSTOM_NODE_CPU_MILLI": 500, "CUSTOM_NODE_MEMORY_MB": 1024, "CUSTOM_PODS": 1}, "0.5 CPU · 1 GiB"),
        ({"CUSTOM_INTEL_COM_SRIOV_A": 1, "MEMORY_MB": 2048, "CUSTOM_FPGA": 2}, "2 GiB · 2 FPGA · 1 VF"),
        ({"SRIOV_NET_VF": 2, "DISK_GB": 20, "CUSTOM_INTEL_COM_SRIOV_B": 1}, "3 VF · 20 GiB disk"),
        ({"CUSTOM_PODS": 1}, "1 pod"),
        ({}, ""),
    ],
)
def test_a_summary_has_each_thing_once(amounts: dict[str, int], text: str):
    assert units.summary(amounts) == text


def test_a_difference_has_signs():
    before, after = {"PCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 5}, {"PCPU": 8, "MEMORY_MB": 1024, "DISK_GB": 5}
    assert units.difference(before, after) == "+4 CPU · \N{MINUS SIGN}1 GiB"
    assert units.difference(before, {}) == " · ".join(
        f"\N{MINUS SIGN}{each}" for each in ("4 CPU", "2 GiB", "5 GiB disk")
    )
