"""`placement sync kubernetes` as a process of its own, and what it is pointed at."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.client.cli import Placement, main
from placement.server.demonstration import examples
from tests.api_server import ApiServer, write_kubeconfig
from tests.patience import PATIENCE_SECONDS
from tests.patience import eventually as eventually
from tests.service import Service

_EXAMPLE = examples() / "edge" / "nodes" / "edge-01.yaml"
# A proxy of the environment does not know loopback.
ENVIRONMENT = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def node_manifests(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Node and the NodeResourceTopology of a machine of its own."""
    node, topology = yaml.safe_load_all(_EXAMPLE.read_text())
    for manifest in (node, topology):
        manifest["metadata"] = {**manifest["metadata"], "name": name, "uid": str(uuid.uuid4())}
    return copy.deepcopy(node), copy.deepcopy(topology)


def pod_manifest(name: str, node: str | None = None, *, cpus: int = 2, **labels: str) -> dict[str, Any]:
    """A Guaranteed pod that wants whole CPUs of its own, on a node if one is given."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": str(uuid.uuid4()),
            "labels": {
                "koordinator.sh/qosClass": "LSR",
                "koordinator.sh/priority-class": "koord-prod",
                **labels,
            },
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending", "qosClass": "Guaranteed"},
    }


def offer_pods(node: dict[str, Any], number: int) -> dict[str, Any]:
    """The node with room for that many pods."""
    node["status"]["allocatable"]["pods"] = str(number)
    return node


def join(api_server: ApiServer, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A machine joins the cluster."""
    node, topology = node_manifests(name)
    api_server.put(topology)
    api_server.put(node)
    return node, topology


def _command(arguments: list[str], output: Path) -> None:
    """Be the command, in a process of its own."""
    with output.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    os.environ.update(ENVIRONMENT)
    sys.exit(main(arguments))


# Its modules are loaded once: starting the command anew would take most of the time.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["placement.sync.synchronization", __name__])


class Forked(_FORKS.Process):  # type: ignore[misc, name-defined]
    """A process as `subprocess` has it."""

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end; what it ended with."""
        self.join(seconds)
        return self.poll()

    def poll(self) -> int | None:
        """What it ended with, None if it runs."""
        found: int | None = self.exitcode
        return found


@dataclass(frozen=True)
class Synchronizing:
    """A running command and what it has printed."""

    process: subprocess.Popen[bytes] | Forked
    output: Path

    @property
    def said(self) -> str:
        """Everything so far."""
        return self.output.read_text()

    def end(self) -> None:
        """End it the way service managers do; it has to take that well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.said
        assert "Traceback" not in self.said


@dataclass(frozen=True)
class Surroundings:
    """An API server, a service, and the name of the cluster there."""

    api_server: ApiServer
    url: str
    cluster: str
    directory: Path

    def nodes(self) -> list[str]:
        """The names of the nodes that the service has."""
        answer = Service(self.url).call("GET", f"/ext/v1/clusters/{self.cluster}/nodes")
        return [node["name"] for node in answer.body["nodes"]] if answer.status == 200 else []

    def pods(self) -> dict[str, str]:
        """The node of each pod that the service has on one, by namespace/name."""
        answer = Service(self.url).call("GET", f"/ext/v1/clusters/{self.cluster}/pods")
        listed = answer.body["pods"] if answer.status == 200 else []
        return {f"{pod['namespace']}/{pod['name']}": pod["node"] for pod in listed if pod["node"]}

    def shown(self, node: str) -> Any:
        """A node as the service shows it."""
        return Service(self.url).must("GET", f"/ext/v1/clusters/{self.cluster}/nodes/{node}")

    def pod(self, name: str) -> Any:
        """A pod as the service shows it."""
        return Service(self.url).must("GET", f"/ext/v1/clusters/{self.cluster}/pods/default/{name}")

    def cores(self, node: str) -> int:
        """How many physical cores a node has."""
        return sum(len(numa["children"]) for numa in self.shown(node)["tree"]["children"])

    def pods_offered(self, node: str) -> int:
        """For how many pods a node has room."""
        found: int = self.shown(node)["resources"]["CUSTOM_PODS"]["capacity"]
        return found

    def used(self, node: str, resource: str = "CUSTOM_PODS") -> int:
        """How much of a node is used."""
        found: int = self.shown(node)["resources"][resource]["used"]
        return found

    @property
    def kubeconfig(self) -> Path:
        """The file that leads to the API server."""
        return self.directory / "kubeconfig"

    def command(self, *arguments: str) -> list[str]:
        """The command with everything it needs to know."""
        kubeconfig = write_kubeconfig(self.kubeconfig, ("lab", self.api_server.url))
        command = [sys.executable, "-m", "placement.client", "--url", self.url, "sync", "kubernetes"]
        return [*command, "--cluster", self.cluster, "--kubeconfig", str(kubeconfig), *arguments]

    def once(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Compare once, in this process: starting one would take most of the time."""
        command, said, trouble = self.command("--once", *arguments), io.StringIO(), io.StringIO()
        usual = signal.getsignal(signal.SIGTERM)
        try:
            with redirect_stdout(said), redirect_stderr(trouble), pytest.MonkeyPatch.context() as patch:
                for name, value in ENVIRONMENT.items():
                    patch.setenv(name, value)
                status = main(command[3:])
        finally:
            signal.signal(signal.SIGTERM, usual)
            Placement.LOG.handlers.clear()
        return subprocess.CompletedProcess(command, status, said.getvalue(), trouble.getvalue())

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Synchronizing]:
        """Watch during the block; it ends well, unless the block has ended it."""
        output = self.directory / f"output-{uuid.uuid4()}"
        output.touch()
        process = Forked(target=_command, args=(self.command(*arguments)[3:], output))
        process.start()
        running = Synchronizing(process, output)
        try:
            yield running
            if process.poll() is None:
                running.end()
        finally:
            process.kill()
            process.wait()
