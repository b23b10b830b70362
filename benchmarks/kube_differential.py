"""Random pods, node by node: what real kube-schedulers say of them, and what the service says.

PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.kube_differential --pods 300 --seed 1
PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.kube_differential --release v1.36

Each difference is printed with its pod and node. The tables count pairs of a pod and a node, twice each: for
the preview of the pod as it was written, and for the extender's filter of the pod as Kubernetes stores it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import print_table
from tests.differential.comparing import Comparison, Pair
from tests.differential.known import explanation
from tests.differential.observer import observing
from tests.real_kubernetes import PROGRAMS, VARIABLE, releases, running_control_plane
from tests.server import database_url, running_service
from tests.service import Service


def main() -> None:
    """Compare, and print differences and tables; exit with 1 where there is a difference without a reason."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kube_differential", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--pods", type=int, default=100, help="that each release is asked about")
    parser.add_argument("--seed", type=int, default=1, help="of clusters and pods")
    parser.add_argument("--release", help="the name of a folder of the directory; all that there are")
    given = parser.parse_args()
    found = [each for each in releases() if given.release in (None, each.name)]
    if not found:
        parser.error(f"{VARIABLE} names no directory with {', '.join(PROGRAMS)} of that release")
    unexplained = [_compared(release, given.pods, given.seed) for release in found]
    if any(unexplained):
        parser.exit(1)


def _compared(release: Path, pods: int, seed: int) -> int:
    """Compare one release and print what came of it; the number of differences without a reason."""
    with (
        TemporaryDirectory() as folder,
        running_control_plane(release, Path(folder)) as kubernetes,
        database_url("sqlite") as connection,
        running_service(connection, workers=1) as server,
        observing() as observer,
        kubernetes.scheduler(observer.extender()),
    ):
        comparison = Comparison(kubernetes, observer, Service(server.url))
        pairs = list(comparison.pairs(pods, seed))
        title = f"kube-scheduler 1.{kubernetes.minor}"
    for pod, error in comparison.invalid:
        print(f"the API server does not take {pod.name}: {error}")
    unexplained = [pair for pair in pairs if pair.differs and not explanation(pair)]
    for pair in unexplained:
        _print(pair)
    _print_tables(title, pairs)
    return len(unexplained)


def _print(pair: Pair) -> None:
    print(
        f"\n{pair.pod.name} on {pair.node_name}, {pair.asked}: "
        f"kube-scheduler {_word(pair.theirs)}, the service {_word(pair.ours)} {pair.reasons}"
    )
    print("pod ", json.dumps(pair.pod.manifest))
    print(
        "node",
        json.dumps(
            {
                "labels": pair.node["metadata"]["labels"],
                **pair.node["spec"],
                "allocatable": pair.node["status"]["allocatable"],
            }
        ),
    )
    for pod in pair.neighbours:
        print("runs", json.dumps({"labels": pod["metadata"]["labels"], "spec": pod["spec"]}))


def _word(takes: bool) -> str:
    return "takes it" if takes else "refuses it"


def _print_tables(title: str, pairs: Iterable[Pair]) -> None:
    counts: dict[str, Counter[str]] = {}
    pods: dict[str, set[str]] = {}
    kinds: Counter[str] = Counter()
    for pair in pairs:
        for feature in ("all", *pair.pod.features):
            counted = counts.setdefault(feature, Counter())
            pods.setdefault(feature, set()).add(pair.pod.name)
            counted["pairs"] += 1
            counted["taken"] += pair.theirs
            counted["differing"] += pair.differs
            counted["unexplained"] += pair.differs and not explanation(pair)
        if pair.differs:
            known = explanation(pair)
            kinds[known.what if known else "unexplained"] += 1
    columns = ["pairs", "taken", "differing", "unexplained"]
    rows = [
        [feature, str(len(pods[feature])), *(str(counts[feature][column]) for column in columns)]
        for feature in sorted(counts)
    ]
    print_table(title, ["feature", "pods", *columns], rows)
    print_table(f"{title}, differences", ["kind", "pairs"], [[kind, str(n)] for kind, n in kinds.items()])


if __name__ == "__main__":
    main()
