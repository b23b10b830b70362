"""`placement sync kubernetes --once`: how long nodes and their pods take to come in, and to be known again.

python -m benchmarks.synchronization                       1,000 nodes
python -m benchmarks.synchronization --nodes 1000 --pods 5000 --workers 2

The API server is a stand-in in a process of its own, the nodes are machines like those of the example cluster
`edge`; the service is the real one on PostgreSQL. Times are those of the whole command, its start included;
beside them the processor time of the command, of the service and of its sessions in the database.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.goals import Figures, scaled
from benchmarks.processor_time import ProcessorTime
from benchmarks.report import print_table
from tests.api_server import ApiServer, running_api_server
from tests.server import database_url, running_service
from tests.synchronizing import ENVIRONMENT, Surroundings, node_manifests, offer_pods, pod_manifest

# What a real API server gives at most to a client that asks for pages.
_PAGE = 500
_CLUSTER = "lab"
_HEADER = ["work", "time", "command", "service", "database", "load", "the command says"]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synchronization", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--pods", type=int, default=0, help="that run on the nodes, without CPUs of their own"
    )
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = _measured(given.nodes, given.pods, given.workers)
    print_table(f"{given.nodes} nodes, {given.pods} pods", _HEADER, rows)


def figures(scale: float) -> Figures:
    """How long the first list takes, and restarts after which nothing has changed."""
    first, restart, again = (row[1] for row in _measured(scaled(1000, scale), pods=0, workers=2))
    return {"sync": f"{first}, {restart} (once more: {again})"}


def _measured(nodes: int, pods: int, workers: int) -> list[list[str]]:
    """The rows of the table."""
    rows = []
    with (
        _api_server(nodes, pods) as api_server,
        database_url("postgresql") as connection,
        running_service(connection, workers=workers) as service,
        TemporaryDirectory() as directory,
    ):
        measured = ProcessorTime(service.process.pid, connection)
        surroundings = Surroundings(api_server, service.url, _CLUSTER, Path(directory))
        for name in ("first list", "restart, nothing changed", "restart once more"):
            before = _spent(measured)
            took, said = _once(surroundings)
            spent = [f"{now - then:.1f} s" for now, then in zip(_spent(measured), before, strict=True)]
            rows.append([name, f"{took:.1f} s", *spent, f"{os.getloadavg()[0]:.1f}", said])
        if nodes != len(surroundings.nodes()):
            raise RuntimeError("not all nodes came in")
    return rows


def _spent(service: ProcessorTime) -> tuple[float, float, float]:
    """Seconds of processor time of commands, of the service and of its sessions in the database."""
    commands, taken = resource.getrusage(resource.RUSAGE_CHILDREN), service.taken()
    return commands.ru_utime + commands.ru_stime, taken.workers / 1000, taken.sessions / 1000


def _once(surroundings: Surroundings) -> tuple[float, str]:
    """Seconds, and the last line of the command."""
    started = time.perf_counter()
    done = subprocess.run(
        surroundings.command("--once"), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    took = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return took, done.stdout.splitlines()[-1]


@contextmanager
def _api_server(nodes: int, pods: int) -> Iterator[ApiServer]:
    """An API server in a process of its own; only the address of what is given is of use."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(there, nodes, pods))
    process.start()
    known = ApiServer()
    known.url = here.recv()
    yield known
    here.send(None)
    process.join()


def _serve(connection: Connection, nodes: int, pods: int) -> None:
    with running_api_server() as api_server:
        api_server.page = _PAGE
        for number in range(nodes):
            node, topology = node_manifests(f"node-{number:05}")
            api_server.put(topology)
            api_server.put(offer_pods(node, 250))
        for number in range(pods):
            pod = pod_manifest(f"pod-{uuid.uuid4()}", f"node-{number % nodes:05}")
            del pod["metadata"]["labels"]
            pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m", "memory": "10Mi"}}
            pod["status"]["qosClass"] = "Burstable"
            api_server.put(pod)
        connection.send(api_server.url)
        connection.recv()


if __name__ == "__main__":
    main()
