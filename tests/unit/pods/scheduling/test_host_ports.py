"""The rule of host ports says what a plain reading of kube-scheduler's NodePorts says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from placement.pods.decide.ranking import ShapeRanking
from placement.pods.decide.reading import import_pod
from placement.pods.decide.rules import PORTS
from placement.pods.decide.rules.ports import NO_FREE_PORTS
from placement.pods.state.model import RecordedPod, SchedulerSettings
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.rows import recorded_pod, written_pod
from tests import naive_pod_rules as naive
from tests.pod_rules import ruled_pod
from tests.unit.pods.scheduling.clusters import built_node, shape_of

SETTINGS = SchedulerSettings()


def some_port(chance: random.Random) -> dict[str, Any]:
    port: dict[str, Any] = {"containerPort": chance.choice([80, 81])}
    for name, values in (
        ("hostPort", [0, 80, 81]),
        ("protocol", ["", "TCP", "UDP"]),
        ("hostIP", ["", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2"]),
    ):
        if chance.random() < 0.6:
            port[name] = chance.choice(values)
    return port


def some_pod(chance: random.Random, name: str) -> dict[str, Any]:
    pod = ruled_pod(name, {}, qos=None)
    spec = pod["spec"]
    helper = {"name": "helper", "ports": [some_port(chance)]}
    if chance.random() < 0.5:
        helper["restartPolicy"] = "Always"
    spec["initContainers"] = [helper] if chance.random() < 0.3 else []
    spec["containers"][0]["ports"] = [some_port(chance) for _ in range(chance.randint(0, 2))]
    if chance.random() < 0.3:
        spec["hostNetwork"] = True
    return pod


def placed_pod(manifest: dict[str, Any], number: int) -> RecordedPod:
    """The pod as it is loaded from its row."""
    ports = import_pod(manifest, SETTINGS).selection.host_ports
    recorded = RecordedPod("default", f"p{number}", f"u{number}", f"c{number}", "", {}, host_ports=ports)
    return recorded_pod("default", f"p{number}", f"u{number}", written_pod(recorded))


@pytest.mark.parametrize("seed", range(10))
def test_a_random_cluster(seed: int) -> None:
    chance, names = random.Random(seed), [f"n{number}" for number in range(6)]
    built = {name: built_node(name) for name in names}
    there: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    columns, refused = NodeColumns().updated(built.values()), 0
    for number in range(40):
        manifest, at = some_pod(chance, f"p{number}"), chance.choice(names)
        shape = shape_of(manifest, SETTINGS)
        free = {name for name in names if naive.are_ports_free(manifest, there[name])}
        refused += len(names) - len(free)
        pod = shape.incoming()
        if PORTS.concerns(pod):
            admitted = zip(names, PORTS.mask(columns, pod), strict=True)
            assert {name for name, is_free in admitted if is_free} == free
        assert {name for name in names if PORTS.refuse(columns.by_name[name], pod) is None} == free
        ranking = ShapeRanking(shape)
        assert {each.node.name for each in ranking.best_first(columns)} == free
        assert {refusal.reasons for refusal in ranking.refusals(columns).values()} <= {(NO_FREE_PORTS,)}
        if there[at] and chance.random() < 0.2:
            there[at].pop()
        elif at in free or chance.random() < 0.2:
            there[at].append(manifest)
        made = tuple(placed_pod(each, place) for place, each in enumerate(there[at]))
        columns = columns.updated([replace(built[at], pods=made)])
    assert refused > 20


def test_pods_without_ports_are_not_looked_at() -> None:
    shape = shape_of(ruled_pod("web", {}, qos=None), SETTINGS)
    assert not PORTS.concerns(shape.incoming())
    assert list(PORTS.conditions(shape.incoming(), ())) == []
