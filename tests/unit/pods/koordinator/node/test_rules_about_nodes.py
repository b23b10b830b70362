"""What manifests of nodes say is offered, refused or warned of as the table of rules says, field by field."""

import json
from pathlib import Path
from typing import Any

import pytest

from placement.common.manifest import ManifestError
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.inventories import Inventory
from placement.engine.numa.cpus import format_cpu_list
from placement.pods.koordinator.node import import_node
from placement.pods.state.model import NodeImport
from tests.unit.pods.koordinator.conftest import SMALL_HOST, build_node, build_nrt, build_zone

CASES = json.loads((Path(__file__).parents[4] / "data" / "node-rules.json").read_text())["cases"]


def changed(manifest: Any, changes: dict[str, Any]) -> Any:
    """The manifest with other values at these paths."""
    copy = json.loads(json.dumps(manifest))
    for path, value in changes.items():
        *above, last = path.split(".")
        place = copy
        for step in above:
            place = place[int(step) if isinstance(place, list) else step]
        place[last] = value
    return copy


def node_of(given: dict[str, Any]) -> Any:
    return changed(
        build_node(**{name: value for name, value in given.items() if name != "set"}), given.get("set", {})
    )


def report_of(given: dict[str, Any]) -> Any:
    zones = given.get("zones")
    if isinstance(zones, dict):
        zones = [build_zone(int(numa), **amounts) for numa, amounts in zones.items()]
    report = build_nrt(
        rows=given.get("rows", SMALL_HOST),
        zones=zones,
        annotations=given.get("annotations"),
        policies=given.get("policies"),
    )
    return changed(report, given.get("set", {}))


def is_said(expected: str, said: str) -> bool:
    """Whether a finding begins so, or ends so where that is what is given."""
    return said.endswith(expected[1:]) if expected.startswith("~") else said.startswith(expected)


def as_expected(inventory: Inventory, expected: int | dict[str, int]) -> bool:
    members = {"total": expected} if isinstance(expected, int) else expected
    return {name: getattr(inventory, name) for name in members} == members


def offers_of(found: NodeImport) -> dict[str, Any]:
    """Inventories by the last part of the name of their provider, the root as `host`."""
    root, *others = found.tree.providers
    named = {provider.name.split("/")[-1]: provider.inventories for provider in others}
    return {"host": root.inventories, **named}


def check(found: NodeImport, expect: dict[str, Any]) -> None:
    for text in expect.get("warnings", ()):
        assert any(text in warning for warning in found.warnings), found.warnings
    assert not [warning for text in expect.get("silent", ()) for warning in found.warnings if text in warning]
    for name, value in expect.get("policies", {}).items():
        assert getattr(found.policies, name) == value, name
    offers = offers_of(found)
    for provider, expected in expect.get("offers", {}).items():
        assert offers[provider].keys() == expected.keys()
        for name, amount in expected.items():
            assert as_expected(offers[provider][name], amount), (provider, name, offers[provider][name])
    traits = found.tree.root.traits
    assert traits.issuperset(expect.get("has", ()))
    assert traits.isdisjoint(expect.get("lacks", ()))
    for name, resource in expect.get("resource_names", {}).items():
        assert found.resource_names.get(name) == resource
    pods = {f"{pod.namespace}/{pod.name}/{pod.uid}": format_cpu_list(pod.cpus) for pod in found.kubelet_pods}
    shown = {
        "traits": sorted(trait for trait in traits if trait.startswith("CUSTOM_KOORD_")),
        "unallocatable": format_cpu_list(found.unallocatable_cpus),
        "unreadable": len(found.unreadable),
        "takeover": found.takeover,
        "kubelet_pods": pods,
        "providers": len(found.tree.providers),
    }
    wanted = {name: expect[name] for name in shown if name in expect}
    assert {name: shown[name] for name in wanted} == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_rule(case: dict[str, Any]) -> None:
    manifests = node_of(case.get("node", {})), report_of(case.get("nrt", {}))
    expect, profile = case["expect"], case.get("profile", "design")
    if "findings" not in expect:
        check(import_node("c1", *manifests, profile), expect)
        return
    with pytest.raises(ManifestError) as refused:
        import_node("c1", *manifests, profile)
    findings = list(map(str, refused.value.findings))
    assert isinstance(refused.value, BadRequest)
    assert str(refused.value).isprintable()
    for expected in expect["findings"]:
        assert any(is_said(expected, finding) for finding in findings), findings
    assert expect.get("more") or len(findings) == len(expect["findings"]), findings
