"""A real Kubernetes control plane for tests: etcd, kube-apiserver and kube-scheduler, on loopback.

There is no kubelet and no controller: nodes are what tests create, pods stay bound, and a bound pod that is
deleted is only gone when it is deleted without grace. Programs come from the folder that `VARIABLE` names,
packed with xz or not.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.api_server import write_kubeconfig
from tests.patience import eventually
from tests.server import free_port

VARIABLE = "PLACEMENT_TEST_KUBERNETES"
_SERVERS = ("etcd", "kube-apiserver", "kube-scheduler")
PROGRAMS = (*_SERVERS, "kubectl")
# The first minor versions of kube-scheduler that read `v1` of its configuration, and that lack `--port`.
_CONFIGURATION_V1, _NO_INSECURE_PORT = 25, 24
_NATIVE_POD_GROUPS = (
    "--feature-gates=GenericWorkload=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)
ETC = Path(__file__).resolve().parents[1] / "etc"
_PATIENCE_SECONDS = 120
_ADMIN, _SCHEDULER = "admin", "system:kube-scheduler"
_ACCOUNTS = "system:serviceaccount:placement"
_NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def programs() -> Path | None:
    """The folder with the programs; None where the environment names none that has them all."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    folder = Path(given)
    return folder if _has(folder, PROGRAMS) else None


def releases() -> list[Path]:
    """The folders with servers of a release: that of `programs`, and those in it that are named `v...`."""
    folder = programs()
    if folder is None:
        return []
    return [folder, *sorted(each for each in folder.glob("v*") if _has(each, _SERVERS))]


def _has(folder: Path, names: Iterable[str]) -> bool:
    return all((folder / name).exists() or (folder / f"{name}.xz").exists() for name in names)


def unpack(source: Path, target: Path) -> None:
    """Put the programs that are there into a folder, ready to be run."""
    for name in PROGRAMS:
        packed = source / f"{name}.xz"
        if (source / name).exists():
            shutil.copy(source / name, target / name)
        elif not packed.exists():
            continue
        else:
            with lzma.open(packed) as stream, (target / name).open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        (target / name).chmod(0o755)


class Refused(Exception):
    """The API server answered with an error; `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Servers:
    """etcd and the API server as processes, which may be killed, and etcd set back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._peers, self.etcd = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path, ExitStack]] = {}

    def start_etcd(self) -> None:
        """Start it with what its folder has."""
        arguments = ["--data-dir", str(self._data), "--listen-client-urls", self.etcd]
        arguments += ["--advertise-client-urls", self.etcd, "--listen-peer-urls", self._peers]
        # What tests write may be lost with the machine.
        self._start("etcd", *arguments, "--unsafe-no-fsync")

    def start_api_server(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Start it; its process and its log."""
        return self._start("kube-apiserver", *_api_arguments(self._folder, self.etcd, self._port))

    def kill(self, program: str) -> None:
        """End one of them at once, as a lack of memory does."""
        self._running[program][0].kill()
        self.stop(program)

    def stop(self, program: str) -> None:
        """End one of them."""
        self._running.pop(program)[2].close()

    def stop_all(self) -> None:
        """End all that run, the last one first."""
        for program in reversed(list(self._running)):
            self.stop(program)

    def copy_data(self) -> Path:
        """Stop etcd for a moment and copy its data; the copy."""
        copy = self._folder / f"etcd-data-{secrets.token_hex(4)}"
        self.stop("etcd")
        shutil.copytree(self._data, copy)
        self.start_etcd()
        return copy

    def set_back(self, copy: Path) -> None:
        """Kill both, and start them with the data that etcd had when it was copied."""
        self.kill("kube-apiserver")
        self.kill("etcd")
        shutil.rmtree(self._data)
        shutil.copytree(copy, self._data)
        self.start_etcd()
        self.start_api_server()

    @property
    def _data(self) -> Path:
        return self._folder / "etcd-data"

    def _start(self, program: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        stack = ExitStack()
        process, log = stack.enter_context(_running(self._folder, program, *arguments))
        self._running[program] = process, log, stack
        return process, log


@dataclass(frozen=True)
class ControlPlane:
    """A running API server and what is needed to reach it; `tokens` are by user."""

    url: str
    folder: Path
    tokens: dict[str, str]
    servers: Servers

    def call(self, method: str, path: str, body: Any = None, media_type: str = "application/json") -> Any:
        """One call as administrator. Raises Refused."""
        with self._answer(method, path, body, media_type) as answer:
            return json.loads(answer.read())

    @contextmanager
    def watch(self, path: str, seconds: int) -> Iterator[Iterable[bytes]]:
        """What happens to the objects of a list from now on, for so many seconds, an event in a line.

        The path has a query.
        """
        version = self.call("GET", f"{path}&limit=1")["metadata"]["resourceVersion"]
        since = f"{path}&watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
        with self._answer("GET", since, seconds=seconds + _PATIENCE_SECONDS) as events:
            yield events

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        media_type: str = "application/json",
        seconds: float = 60,
    ) -> Iterator[Any]:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.tokens[_ADMIN]}", "Content-Type": media_type},
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust)
        )
        try:
            with opener.open(request, timeout=seconds) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from None

    def create(self, manifest: dict[str, Any]) -> Any:
        """Create an object, status of nodes and pods included; as stored."""
        path = _collection(manifest)
        created = self.call("POST", path, manifest)
        if manifest["kind"] == "Node" and "status" in manifest:
            item = f"{path}/{manifest['metadata']['name']}/status"
            merge = {"status": manifest["status"]}
            created = self.call("PATCH", item, merge, "application/merge-patch+json")
        return created

    def ensure(self, manifest: dict[str, Any]) -> None:
        """Create an object unless it is there."""
        try:
            self.create(manifest)
        except Refused as error:
            if error.status != 409:
                raise

    def await_ready(self) -> None:
        """Wait until it answers, after it was started once more."""
        eventually(True, self._is_ready)

    def _is_ready(self) -> bool:
        with suppress(OSError, Refused, ValueError):
            self.call("GET", "/api/v1/namespaces/default")
            return True
        return False

    def pod(self, name: str) -> Any | None:
        """A pod of the default namespace."""
        try:
            return self.call("GET", f"/api/v1/namespaces/default/pods/{name}")
        except Refused as error:
            if error.status != 404:
                raise
            return None

    def pods(self) -> list[Any]:
        """All pods of the default namespace."""
        found: list[Any] = self.call("GET", "/api/v1/namespaces/default/pods")["items"]
        return found

    def set_phase(self, name: str, phase: str) -> None:
        """What a kubelet would report of a pod."""
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        self.call("PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json")

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once, as a kubelet would after its grace."""
        with suppress(Refused):
            self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")

    def clear(self) -> None:
        """Delete what tests create, and what was written about it."""
        for path in (
            "/api/v1/namespaces/default/pods?gracePeriodSeconds=0",
            "/api/v1/namespaces/default/events",
            "/api/v1/nodes",
            "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
        ):
            self.call("DELETE", path)

    @property
    def minor(self) -> int:
        """The minor version of the release, 20 of 1.20."""
        return int(re.sub(r"\D", "", self.call("GET", "/version")["minor"]))

    def kubeconfig(self, name: str, user: str, context: str) -> Path:
        """A kubeconfig for a user, with one context."""
        return write_kubeconfig(
            self.folder / f"{name}.kubeconfig",
            (context, self.url),
            token=self.tokens[user],
            authority=self.folder / "certificates" / "apiserver.crt",
        )

    def sync_kubeconfig(self, context: str) -> Path:
        """For the synchronisation, with the rights that etc/kubernetes gives it."""
        return self.kubeconfig("sync", f"{_ACCOUNTS}:placement-sync", context)

    def bind_kubeconfig(self, context: str) -> Path:
        """For the extender, likewise."""
        return self.kubeconfig("bind", f"{_ACCOUNTS}:placement-bind", context)

    def schedule_kubeconfig(self, context: str, url: str | None = None) -> Path:
        """For the scheduling loop, likewise; another URL is that of something in between."""
        user = f"{_ACCOUNTS}:placement-schedule"
        if url is None:
            return self.kubeconfig("schedule", user, context)
        file = self.folder / "schedule-between.kubeconfig"
        return write_kubeconfig(file, (context, url), token=self.tokens[user])

    @property
    def trust(self) -> ssl.SSLContext:
        """How clients know the API server."""
        return ssl.create_default_context(cafile=str(self.folder / "certificates" / "apiserver.crt"))

    @contextmanager
    def scheduler(self, *extenders: dict[str, Any], name: str = "default-scheduler") -> Iterator[Path]:
        """kube-scheduler with these extenders for the pods that name it during the block; its log."""
        kubeconfig = str(self.kubeconfig("scheduler", _SCHEDULER, "lab"))
        minor = self.minor
        version = "v1" if minor >= _CONFIGURATION_V1 else "v1beta1"
        config = {
            "apiVersion": f"kubescheduler.config.k8s.io/{version}",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": name}],
            "leaderElection": {"leaderElect": False},
            # Its own limits, 50 a second, spare API servers that others need as well.
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 2000, "burst": 2000},
            "extenders": list(extenders),
        }
        port = str(free_port())
        arguments = ["--secure-port", port, "-v=2"]
        if minor < _NO_INSECURE_PORT:
            arguments.append("--port=0")
            # What a file says counts, and what it leaves out are ports that only one scheduler can have.
            address = f"127.0.0.1:{free_port()}"
            config |= {"healthzBindAddress": address, "metricsBindAddress": address}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        arguments = ["--config", str(file), *arguments]
        with _running(self.folder, "kube-scheduler", *arguments) as (_, log):
            yield log


def _collection(manifest: dict[str, Any]) -> str:
    kind, group = manifest["kind"], manifest["apiVersion"]
    prefix = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    plural = {
        "NodeResourceTopology": "noderesourcetopologies",
        "PriorityClass": "priorityclasses",
        "RuntimeClass": "runtimeclasses",
    }
    name = plural.get(kind, kind.lower() + "s")
    namespace = manifest["metadata"].get("namespace")
    return f"{prefix}/namespaces/{namespace}/{name}" if namespace else f"{prefix}/{name}"


@contextmanager
def running_control_plane(source: Path, folder: Path) -> Iterator[ControlPlane]:
    """etcd and an API server, with the rights of etc/kubernetes and the custom resource of nodes."""
    unpack(source, folder)
    tokens = {
        user: secrets.token_hex(16)
        for user in (
            _ADMIN,
            _SCHEDULER,
            *(f"{_ACCOUNTS}:placement-{each}" for each in ("sync", "bind", "schedule")),
        )
    }
    _write_credentials(folder, tokens)
    with ExitStack() as stack:
        servers = Servers(folder)
        stack.callback(servers.stop_all)
        servers.start_etcd()
        plane = ControlPlane(servers.url, folder, tokens, servers)
        _await_ready(plane, *servers.start_api_server())
        _install(plane)
        yield plane


def _write_credentials(folder: Path, tokens: dict[str, str]) -> None:
    rows = [
        f'{token},{user},{number},"{"system:masters" if user == _ADMIN else "system:authenticated"}"'
        for number, (user, token) in enumerate(tokens.items())
    ]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _api_arguments(folder: Path, etcd: str, port: int) -> list[str]:
    key = str(folder / "accounts.key")
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        # Nobody here makes service accounts for namespaces or takes the taints of new nodes away.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        f"--cert-dir={folder / 'certificates'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        *(_NATIVE_POD_GROUPS if _offers_pod_groups(folder) else ()),
    ]


def _offers_pod_groups(folder: Path) -> bool:
    """Whether the API server has PodGroups of its own, which are not on by default."""
    command = [str(folder / "kube-apiserver"), "--help"]
    offered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "GenericWorkload=true" in offered and "GangScheduling=true" in offered


def _await_ready(plane: ControlPlane, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if plane._is_ready():
            return
        time.sleep(0.2)
    raise AssertionError(f"the API server does not start:\n{log.read_text()[-3000:]}")


def _install(plane: ControlPlane) -> None:
    for file in (
        "kubernetes/rights.yaml",
        "kubernetes-binding/rights.yaml",
        "kubernetes-scheduling/rights.yaml",
        "examples/kubernetes-topologies.yaml",
    ):
        for manifest in yaml.safe_load_all((ETC / file).read_text()):
            plane.create(manifest)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with suppress(Refused):
            plane.call("GET", "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies")
            return
        assert time.monotonic() < deadline, "the custom resource is never served"
        time.sleep(0.2)


@contextmanager
def _running(folder: Path, program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A program during the block; its log."""
    log = folder / f"{program}-{secrets.token_hex(2)}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(folder / program), *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_NO_PROXY},
        )
    try:
        yield process, log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
