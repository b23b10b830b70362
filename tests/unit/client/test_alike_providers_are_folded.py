"""Providers whose names differ in a number, and that hold the same, are one entry for people."""

from placement.client.display import folded


def test_cores_are_folded_and_hosts_are_not():
    held = [
        ("edge/edge-01", {"CUSTOM_PODS": 1}),
        ("edge/edge-02", {"CUSTOM_PODS": 1}),
        *((f"edge/edge-01/core-0-{number}", {"PCPU": 2}) for number in (1, 2, 3, 7)),
        ("edge/edge-01/core-0-4", {"PCPU": 1}),
        ("edge/edge-01/core-1-4", {"PCPU": 2}),
    ]
    assert list(folded(held)) == [
        ("edge/edge-01", {"CUSTOM_PODS": 1}, 1),
        ("edge/edge-02", {"CUSTOM_PODS": 1}, 1),
        ("edge/edge-01/core-0-[1-3,7]", {"PCPU": 2}, 4),
        ("edge/edge-01/core-0-4", {"PCPU": 1}, 1),
        ("edge/edge-01/core-1-4", {"PCPU": 2}, 1),
    ]
