"""Rules between pods are what a plain reading of kube-scheduler's says, however the cluster changes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from placement.pods.decide.adjustments import RulesBetweenPods
from placement.pods.decide.ranking import PodRanking, ShapeRanking, priorities
from placement.pods.decide.reading import import_pod
from placement.pods.decide.rules import BETWEEN_PODS
from placement.pods.decide.rules.between_pods import PodAmongOthers
from placement.pods.decide.rules.placed_pods import PlacedPods
from placement.pods.decide.rules.rule import PodShape
from placement.pods.manifests.affinity import Bearer, PodSelector
from placement.pods.state.model import PodSpec, RecordedPod, SchedulerSettings
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.rows import recorded_pod, written_pod
from tests import naive_pod_rules as naive
from tests.pod_rules import ruled_pod
from tests.unit.pods.scheduling.clusters import built_node

KEYS = ("zone", "rack", naive.HOSTNAME)
SETTINGS = SchedulerSettings()
_PLACES = [("a", "1"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", ""), ("c", "4"), ("", "4"), ("", "")]
_NODES = {
    f"n{number}": {
        key: value for key, value in ((naive.HOSTNAME, f"n{number}"), ("zone", zone), ("rack", rack)) if value
    }
    for number, (zone, rack) in enumerate(_PLACES)
}
_TAINTED = ("n1", "n5")
_TAINT = {"taints": [{"key": "closed", "effect": "NoSchedule"}]}
BUILT = {
    name: built_node(name, labels=labels, spec=_TAINT if name in _TAINTED else None)
    for name, labels in _NODES.items()
}


def some_labels(chance: random.Random) -> dict[str, str]:
    found = {"app": chance.choice(["web", "db"]), "hash": chance.choice("12")}
    return {key: found[key] for key in found if chance.random() < 0.8}


def some_term(chance: random.Random) -> list[Any]:
    selector = (
        None if chance.random() < 0.05 else {k: v for k, v in some_labels(chance).items() if k == "app"}
    )
    others: dict[str, Any] = {}
    if chance.random() < 0.2:
        others["namespaces"] = ["other", *(["default"] if chance.random() < 0.5 else [])]
    if chance.random() < 0.1:
        others["namespaceSelector"] = {}
    if selector is not None and chance.random() < 0.2:
        others["matchLabelKeys"] = ["hash"]
    return [chance.choice(KEYS), selector, others]


def some_constraint(chance: random.Random, *, required: bool) -> list[Any]:
    others: dict[str, Any] = {
        "nodeAffinityPolicy": chance.choice(["Honor", "Ignore"]),
        "nodeTaintsPolicy": chance.choice(["Honor", "Ignore"]),
    }
    if required and chance.random() < 0.3:
        others["minDomains"] = chance.randint(1, 9)
    return [chance.choice(KEYS), chance.randint(1, 3), {"app": "web"}, others]


def some_pod(chance: random.Random, name: str) -> dict[str, Any]:
    said: dict[str, Any] = {
        "labels": some_labels(chance),
        "namespace": chance.choice(["default", "default", "other"]),
    }
    for kind in ("near", "apart"):
        if chance.random() < 0.35:
            said[kind] = [some_term(chance) for _ in range(chance.randint(1, 2))]
    for kind in ("rather_near", "rather_apart"):
        if chance.random() < 0.35:
            said[kind] = [[chance.randint(1, 100), *some_term(chance)] for _ in range(chance.randint(1, 2))]
    for kind in ("spread", "rather_spread"):
        if chance.random() < 0.35:
            number = chance.randint(1, 2)
            said[kind] = [some_constraint(chance, required=kind == "spread") for _ in range(number)]
    if chance.random() < 0.2:
        said["nodeSelector"] = {"zone": chance.choice("ab")}
    return ruled_pod(name, said, qos=None)


def placed_pod(manifest: dict[str, Any], number: int) -> RecordedPod:
    """The pod as it is loaded from its row."""
    rules = import_pod(manifest, SETTINGS).rules
    recorded = RecordedPod(rules.bearer[0], f"p{number}", f"u{number}", f"consumer-{number}", "", {})
    stored = replace(recorded, labels=rules.bearer[1], affinity=rules.affinity)
    return recorded_pod(stored.namespace, stored.name, stored.uid, written_pod(stored))


@pytest.mark.parametrize("seed", range(20))
def test_a_random_cluster(seed: int) -> None:
    chance, placed = random.Random(seed), PlacedPods()
    nodes = {name: naive.Node(name, labels, name in _TAINTED) for name, labels in _NODES.items()}
    columns = NodeColumns().updated(BUILT.values())  # type: ignore[arg-type]
    for number in range(30):
        manifest, name = some_pod(chance, f"p{number}"), chance.choice(list(nodes))
        check(manifest, columns, placed, list(nodes.values()))
        if chance.random() < 0.2 and nodes[name].pods:
            nodes[name].pods.pop()
        else:
            nodes[name].pods.append(manifest)
        made = tuple(placed_pod(each, at) for at, each in enumerate(nodes[name].pods))
        columns = columns.updated([replace(BUILT[name], pods=made)])  # type: ignore[list-item]


def check(
    manifest: dict[str, Any], columns: NodeColumns, placed: PlacedPods, nodes: list[naive.Node]
) -> None:
    incoming = import_pod(manifest, SETTINGS)
    pod = PodAmongOthers(
        incoming.request, incoming.selection, rules=incoming.rules, placed_pods=placed, whole_columns=columns
    )
    found: dict[str, str] = {}
    for rule in BETWEEN_PODS:
        for admitted, node in zip(rule.mask(columns, pod), columns.nodes, strict=True):
            refusal = rule.refuse(node, pod)
            assert admitted == (refusal is None)
            if refusal is not None:
                found.setdefault(node.name, refusal.reasons[0])
    expected = {node.name: naive.refusal(manifest, node, nodes) for node in nodes}
    assert found == {name: reason for name, reason in expected.items() if reason}
    check_order(incoming, columns, placed, set(found))
    rows = np.array([row for row, node in enumerate(columns.nodes) if node.name not in found], np.intp)
    fitting = [nodes[row] for row in rows]
    if fitting:
        spread, scores = (rule.scores(pod, rows) for rule in BETWEEN_PODS)
        said = [0] * len(rows) if scores is None else scores.tolist()
        assert said == naive.affinity_scores(manifest, fitting, nodes)
        if naive.prefers_spread(manifest):
            assert spread.tolist() == naive.spread_scores(manifest, fitting, nodes)
        else:
            # Equal scores would count for a rule that the pod does not have.
            assert spread is None


def check_order(incoming: PodSpec, columns: NodeColumns, placed: PlacedPods, refused: set[str]) -> None:
    """Nodes come by what the pod misses, then by the scores that are told, and as they are."""
    shape = PodShape(incoming.request, incoming.selection, SETTINGS)
    alone = ShapeRanking(shape)
    ruled = PodRanking(alone, [RulesBetweenPods(shape, incoming.rules, placed, columns)])
    scores = priorities(ruled, columns, SETTINGS.host_scoring.max_score)
    fitting = [each for each in alone.best_first(columns) if each.node.name not in refused]
    expected = [each._replace(score=scores[each.node.name]) for each in fitting]
    expected.sort(key=lambda each: (each.missed, -each.score, each.node.name))
    assert list(ruled.best_first(columns)) == expected
    assert len(scores) == len(fitting)


def test_a_term_is_tried_once_for_like_pods_until_terms_change(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    selects = PodSelector.selects

    def counted(selector: PodSelector, bearer: Bearer) -> bool:
        tried.append(selector)
        return selects(selector, bearer)

    monkeypatch.setattr(PodSelector, "selects", counted)
    apart = ruled_pod("apart", {"labels": {"app": "db"}, "apart": [["zone", {"app": "web"}]]}, qos=None)
    coming = ruled_pod("coming", {"labels": {"app": "web"}}, qos=None)
    columns, placed = NodeColumns().updated(BUILT.values()), PlacedPods()  # type: ignore[arg-type]
    for name in ("n3", "n5"):
        keeping = replace(BUILT[name], pods=(placed_pod(apart, len(tried)),))
        columns = columns.updated([keeping])  # type: ignore[list-item]
        tried.clear()
        for _ in range(2):
            incoming = import_pod(coming, SETTINGS)
            shape = PodShape(incoming.request, incoming.selection, SETTINGS)
            rules = RulesBetweenPods(shape, incoming.rules, placed, columns)
            list(PodRanking(ShapeRanking(shape), [rules]).best_first(columns))
        assert len(tried) == 1
