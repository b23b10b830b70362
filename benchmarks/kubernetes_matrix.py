"""What of Kubernetes is decided by which way: one real case for each feature, as a Markdown table.

python -m benchmarks.kubernetes_matrix           prints the table
python -m benchmarks.kubernetes_matrix --write   writes it into docs/kubernetes.md

The service, its extender and the process of the loop are real. The API server is the stand-in of the tests,
so nothing here says what kube-scheduler itself decides: `benchmarks.kube_differential` compares with it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from placement.app import build
from placement.common.manifest import CHOOSE_GATE
from placement.http.registry import registry_of
from placement.server.binders import KubeconfigBinders
from placement.storage.database import Database
from tests.api_server import ApiServer, running_api_server, write_kubeconfig
from tests.conftest import compatible
from tests.kubernetes import CLUSTER
from tests.matrix_rows import ROWS, Case, Outcome, Row, Way, cpus_of
from tests.patience import eventually
from tests.server import database_url, hosted
from tests.service import Service
from tests.synchronizing import ENVIRONMENT

PAGE = Path(__file__).resolve().parents[1] / "docs" / "kubernetes.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"
YES, LEFT, SILENT, WRONG = "yes", "left to kube-scheduler", "silent", "wrong"
_NO = "no: "
_NAME = re.compile(r"row-\d+-(?:extender|loop|gate)-?")
# Nothing more is expected of a pod for which something else is waited for, so long.
_SETTLED_SECONDS = 10.0


def main() -> None:
    """Print or write the table; exit with 1 where a cell is wrong or silent."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubernetes_matrix", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", action="store_true", help="write it into docs/kubernetes.md")
    given = parser.parse_args()
    cells = matrix()
    found = table(cells)
    print(found)
    if given.write:
        before, after = PAGE.read_text().split(BEGIN)[0], PAGE.read_text().split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{found}\n{END}{after}")
    if any(cell.startswith((SILENT, WRONG)) for row in cells for cell in row):
        parser.exit(1)


def table(cells: Sequence[Sequence[str]]) -> str:
    """The cells as Markdown, with a line for each row."""
    lines = [["feature", *Way], ["---"] * (1 + len(Way))]
    lines += [[row.feature, *of_row] for row, of_row in zip(ROWS, cells, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def matrix() -> list[list[str]]:
    """What came of each row by each way."""
    cases = [[row.case(number, way) for way in Way] for number, row in enumerate(ROWS)]
    with running_api_server() as api_server, TemporaryDirectory() as folder:
        api_server.page = 500
        for each in cases:
            for case in each:
                for manifest in (case.topology, case.node, *case.others):
                    if not api_server.has(manifest):
                        api_server.put(manifest)
                if case.way is not Way.EXTENDER:
                    api_server.put(case.pod)
        kubeconfig = write_kubeconfig(Path(folder) / "kubeconfig", ("edge", api_server.url))
        with _service(kubeconfig) as url:
            service = Service(url)
            service.must("PUT", CLUSTER, {"loopNodes": "marked"})
            with _loop(url, kubeconfig, Path(folder) / "loop.txt"):
                # Pods are placed once all nodes are recorded, with what runs there.
                first, loop = cases[0][1], _Loop(api_server)
                eventually(True, lambda: loop.is_placed(first))
                by_way: dict[Way, _Extender | _Loop] = {
                    Way.EXTENDER: _Extender(service, api_server),
                    Way.LOOP: loop,
                    Way.GATE: loop,
                }
                return [
                    [by_way[case.way].cell(row, case) for case in each]
                    for row, each in zip(ROWS, cases, strict=True)
                ]


@contextmanager
def _service(kubeconfig: Path) -> Iterator[str]:
    with database_url("sqlite") as url:
        database = Database(url)
        application = build(database, compatible(), binders=KubeconfigBinders(str(kubeconfig)))
        with hosted(application) as address:
            yield address
        registry_of(application).close()
        database.dispose()


@contextmanager
def _loop(url: str, kubeconfig: Path, output: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "placement.client", "--url", url, "schedule", "kubernetes"]
    command += ["--cluster", "edge", "--kubeconfig", str(kubeconfig)]
    with output.open("wb") as stream:
        environment = {**ENVIRONMENT, "PLACEMENT_TOKEN": "admin"}
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class _Extender:
    """kube-scheduler, as far as it asks the extender about the only node that a pod may go to."""

    def __init__(self, service: Service, api_server: ApiServer) -> None:
        self._service = service
        self._api_server = api_server

    def cell(self, row: Row, case: Case) -> str:
        """What came of the pod of a case."""
        if row.outcome is Outcome.UNTOUCHED:
            # kube-scheduler asks about no pod that has a gate.
            return LEFT
        self._api_server.put(case.pod)
        named = {"Pod": case.pod, "NodeNames": [case.of_node]}
        filtered = self._ask("filter", named)
        failed = {**(filtered["FailedNodes"] or {}), **(filtered["FailedAndUnresolvableNodes"] or {})}
        if row.outcome is Outcome.PREEMPTS:
            proposed = {"Pod": case.pod, "NodeNameToMetaVictims": {case.of_node: {"Pods": []}}}
            victims = self._ask("preempt", proposed)["NodeNameToMetaVictims"]
            return YES if failed and victims else WRONG
        if filtered["Error"] or failed:
            return _judged(row, filtered["Error"] or failed[case.of_node])
        if row.by_kube_scheduler:
            return LEFT
        metadata = case.pod["metadata"]
        binding = {"PodName": case.name, "PodNamespace": "default", "PodUID": metadata["uid"]}
        error = self._ask("bind", {**binding, "Node": case.of_node})["Error"]
        if error:
            return _judged(row, error)
        return _bound(row, self._api_server, case)

    def _ask(self, verb: str, body: dict[str, Any]) -> Any:
        return self._service.must("POST", f"{CLUSTER}/extender/{verb}", body)


class _Loop:
    """The process of the loop, which has pods with its `schedulerName` and pods with its gate."""

    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server

    def is_placed(self, case: Case) -> bool:
        """Whether the pod of a case is on a node."""
        pod = self._api_server.get("Pod", case.name, "default")
        return pod is not None and "nodeName" in pod["spec"]

    def cell(self, row: Row, case: Case) -> str:
        """What came of the pod of a case."""
        deadline = time.monotonic() + _SETTLED_SECONDS
        while True:
            pod = self._api_server.get("Pod", case.name, "default")
            assert pod is not None
            found = self._cell(row, case, pod)
            if found != SILENT or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def _cell(self, row: Row, case: Case, pod: dict[str, Any]) -> str:
        conditions = pod["status"].get("conditions") or ()
        text = next((str(each["message"]) for each in conditions if each["type"] == "PodScheduled"), "")
        gates = {"name": CHOOSE_GATE} in pod["spec"].get("schedulingGates", ())
        has_place = not gates if case.way is Way.GATE else "nodeName" in pod["spec"]
        if row.outcome is Outcome.UNTOUCHED:
            return WRONG if has_place or text else YES
        if row.outcome is Outcome.PREEMPTS and text:
            victim = case.others[0]["metadata"]["name"]
            is_gone = self._api_server.get("Pod", victim, "default") is None
            if is_gone:
                return YES
            return f"{_NO}{row.reason}" if case.way is Way.GATE and row.reason in text else SILENT
        if text:
            return _judged(row, text)
        if not has_place:
            return SILENT
        if case.way is Way.GATE and row.by_kube_scheduler:
            return LEFT
        return _bound(row, self._api_server, case)


def _judged(row: Row, text: str) -> str:
    """What a refusal of a pod says: that its feature was decided, or that it is not."""
    if row.reason and row.reason in text:
        return YES
    return f"{_NO}{_NAME.sub('', text)}" if not row.reason or row.by_kube_scheduler else f"{WRONG}: {text}"


def _bound(row: Row, api_server: ApiServer, case: Case) -> str:
    """What came of a pod that has its place."""
    notes = _notes(api_server.told, case.name)
    if notes:
        return f"{_NO}{'; '.join(notes)}"
    pod = api_server.get("Pod", case.name, "default")
    if row.outcome is Outcome.PINNED and pod is not None and cpus_of(pod):
        return YES
    return SILENT


def _notes(events: Iterable[dict[str, Any]], name: str) -> list[str]:
    """The Events that say what of a pod was not decided."""
    return [
        str(event["message"])
        for event in events
        if event["reason"] == "NotDecided" and event["involvedObject"]["name"] == name
    ]


if __name__ == "__main__":
    main()
