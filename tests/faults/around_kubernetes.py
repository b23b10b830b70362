"""The service, the synchronisation and kube-scheduler around a real Kubernetes."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes import node_manifests
from tests.real_kubernetes import ControlPlane
from tests.server import RunningServer, running_service
from tests.service import Service
from tests.synchronizing import ENVIRONMENT, Synchronizing, eventually, pod_manifest

CLUSTER = "edge"
# kube-scheduler can send it only as a password.
TOKEN = "the-token-of-everybody-in-this-laboratory"


@dataclass(frozen=True)
class Lab:
    """A real Kubernetes and a service with two worker processes that may bind in it."""

    kubernetes: ControlPlane
    server: RunningServer
    folder: Path
    # How its clients speak TLS, if it does.
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Where the service answers."""
        return self.server.url

    def add_node(self, name: str, **options: Any) -> None:
        """A machine of 16 CPUs, unless said otherwise, joins Kubernetes."""
        manifests = node_manifests(name, **options)
        del manifests["node"]["metadata"]["uid"]
        topology = manifests["nodeResourceTopology"]
        for zone in topology["zones"]:
            for entry in zone["resources"]:
                entry.setdefault("available", entry["allocatable"])
                entry.setdefault("capacity", entry["allocatable"])
        self.kubernetes.create(topology)
        self.kubernetes.create(manifests["node"])

    def create_pod(
        self, name: str, cpus: int = 2, annotations: dict[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        """A pod that wants whole CPUs of its own comes and waits for a place; as Kubernetes stores it."""
        manifest = pod_manifest(name, cpus=cpus)
        del manifest["metadata"]["uid"], manifest["status"]
        manifest["metadata"]["annotations"] = annotations or {}
        manifest["spec"] |= spec
        created: dict[str, Any] = self.kubernetes.create(manifest)
        return created

    def bound(self) -> set[str]:
        """The names of the pods that Kubernetes has on a node."""
        return {pod["metadata"]["name"] for pod in self.kubernetes.pods() if pod["spec"].get("nodeName")}

    def service(self, method: str, path: str, body: Any = None) -> Any:
        """A call below the cluster that must succeed."""
        return Service(self.url, TOKEN, self.tls).must(method, f"/ext/v1/clusters/{CLUSTER}{path}", body)

    def claims(self) -> dict[str, str]:
        """The node of each pod that the service has on one, by name."""
        listed = self.service("GET", "/pods")["pods"]
        return {pod["name"]: pod["node"] for pod in listed if pod["node"]}

    def used(self, node: str, resource: str = "PCPU") -> int:
        """How much of a node the service counts as used."""
        found: int = self.service("GET", f"/nodes/{node}")["resources"][resource]["used"]
        return found

    def bind(self, name: str, uid: str, node: str) -> str:
        """Ask the extender to bind; its error."""
        body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}
        error: str = self.service("POST", "/extender/bind", body)["Error"]
        return error

    def extender(self, **options: Any) -> dict[str, Any]:
        """The extender as kube-scheduler's configuration names it."""
        return {
            "urlPrefix": f"{self.url.replace('//', f'//:{TOKEN}@')}/ext/v1/clusters/{CLUSTER}/extender",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "preemptVerb": "preempt",
            "weight": 1,
            "nodeCacheCapable": True,
            "httpTimeout": "30s",
            **options,
        }

    def nodes(self) -> set[str]:
        """The names of the nodes that the service has."""
        return {node["name"] for node in self.service("GET", "/nodes")["nodes"]}

    @contextmanager
    def synchronized(self, nodes: int) -> Iterator[Synchronizing]:
        """The synchronisation runs during the block, which begins when it has compared everything."""
        with self._following("sync", self.kubernetes.sync_kubeconfig(CLUSTER), nodes) as running:
            yield running

    @contextmanager
    def scheduled(self, nodes: int, *arguments: str) -> Iterator[Synchronizing]:
        """The scheduling loop runs during the block, which begins when it has compared everything."""
        with self._following(
            "schedule", self.kubernetes.schedule_kubeconfig(CLUSTER), nodes, *arguments
        ) as it:
            yield it

    @contextmanager
    def _following(self, verb: str, kubeconfig: Path, nodes: int, *arguments: str) -> Iterator[Synchronizing]:
        output = self.folder / f"{verb}-{len(list(self.folder.iterdir()))}.txt"
        command = [sys.executable, "-m", "placement.client", "--url", self.url, verb, "kubernetes"]
        command += ["--cluster", CLUSTER, "--kubeconfig", str(kubeconfig), *arguments]
        environment = {**ENVIRONMENT, "PLACEMENT_TOKEN": TOKEN}
        with output.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        running = Synchronizing(process, output)
        try:
            # It says so when it has compared everything for the first time.
            eventually(True, lambda: f"nodes {nodes}," in running.said)
            yield running
            if process.poll() is None:
                running.end()
        finally:
            process.kill()
            process.wait()


@contextmanager
def lab(
    kubernetes: ControlPlane,
    connection: str,
    folder: Path,
    arguments: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> Iterator[Lab]:
    """A service beside that Kubernetes, with more arguments, and TLS if these say so."""
    tokens = folder / "tokens.yaml"
    tokens.write_text(json.dumps({TOKEN: {"user": "lab", "project": "lab", "roles": ["admin", "service"]}}))
    tokens.chmod(0o600)
    environment = {
        **ENVIRONMENT,
        "OS_KUBERNETES__KUBECONFIG": str(kubernetes.bind_kubeconfig(CLUSTER)),
        "OS_API__AUTH_STRATEGY": "token",
        "OS_API__TOKENS_FILE": str(tokens),
    }
    with running_service(connection, workers=2, arguments=arguments, environment=environment) as server:
        found = Lab(kubernetes, server, folder, tls)
        found.service("PUT", "")
        yield found


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Make the calls at the same time, eight at once; their results."""
    with ThreadPoolExecutor(8) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
