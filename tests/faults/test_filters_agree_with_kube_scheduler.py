"""The service says of random pods and nodes what real kube-schedulers say, but for what is known."""

from __future__ import annotations

import json
from pathlib import Path

from tests.differential.comparing import Comparison
from tests.differential.known import KNOWN, explanation
from tests.differential.observer import observing
from tests.real_kubernetes import ControlPlane
from tests.server import database_url, running_service
from tests.service import Service

_SEED, _PODS = 11, 25
_DOCUMENT = Path(__file__).parents[2] / "docs" / "kubernetes.md"


def test_each_pair_of_a_pod_and_a_node_is_decided_alike(any_kubernetes: ControlPlane) -> None:
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1) as server,
        observing() as observer,
        any_kubernetes.scheduler(observer.extender()),
    ):
        comparison = Comparison(any_kubernetes, observer, Service(server.url))
        pairs = list(comparison.pairs(_PODS, _SEED))
    unexplained = [
        (pair.asked, pair.node, pair.theirs, pair.reasons, json.dumps(pair.pod.manifest))
        for pair in pairs
        if pair.differs and not explanation(pair)
    ]
    assert not unexplained
    # Both verdicts occur, or nothing would be compared.
    taken = sum(pair.theirs for pair in pairs)
    assert min(taken, len(pairs) - taken) > len(pairs) / 10
    assert len({pair.pod.name for pair in pairs}) > _PODS - 5


def test_each_known_difference_is_documented() -> None:
    text = _DOCUMENT.read_text()
    assert [kind.what for kind in KNOWN if f"| {kind.what} |" not in text] == []
