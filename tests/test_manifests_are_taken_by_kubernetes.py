"""etc/kubernetes: kubectl renders it, a real API server takes it, and the command knows its arguments."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.server import settings
from placement.server.commands import Serve
from placement.sync.command import SyncKubernetes
from tests.real_kubernetes import ETC, ControlPlane

_BASE = ETC / "kubernetes"
_PAGE = ETC.parent / "docs" / "deploying.md"
_OWN = shutil.which("kubectl")
# What the release that the tests have calls it; 1.21 and newer call it as the base does.
_BUDGETS = ("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Kubectl:
    """kubectl as administrator."""
    config = control_plane.kubeconfig("kubectl", "admin", "lab")

    def run(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(control_plane.folder / "kubectl"), "--kubeconfig", str(config), *arguments]
        finished = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        return finished

    return run


def found(manifests: list[Any], kind: str, name: str) -> Any:
    (wanted,) = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return wanted


def container(manifests: list[Any], deployment: str) -> Any:
    return found(manifests, "Deployment", deployment)["spec"]["template"]["spec"]["containers"][0]


def read() -> list[Any]:
    """All manifests of the base, as they are written."""
    files = yaml.safe_load((_BASE / "kustomization.yaml").read_text())["resources"]
    return [each for file in files for each in yaml.safe_load_all((_BASE / file).read_text())]


def test_pods_of_the_service_wait_for_no_scheduler_that_asks_them():
    sample = yaml.safe_load((ETC / "kube-scheduler-extender.yaml").read_text())
    asking = {profile["schedulerName"] for profile in sample["profiles"]}
    pods = [each["spec"]["template"]["spec"] for each in read() if each["kind"] == "Deployment"]
    assert len(pods) == 2
    assert {pod["schedulerName"] for pod in pods} == {"default-scheduler"}
    assert "default-scheduler" not in asking


def test_a_real_api_server_takes_the_base_again_and_again(kubectl):
    rendered = kubectl("kustomize", str(_BASE)).stdout
    assert rendered.count(_BUDGETS[0]) == 2
    manifests = rendered.replace(*_BUDGETS)
    kubectl("apply", "-f", "-", given=manifests)
    again = kubectl("apply", "-f", "-", given=manifests).stdout.splitlines()
    assert len(again) == len(list(yaml.safe_load_all(manifests)))
    assert [line for line in again if not line.endswith(" unchanged")] == []
    stored = json.loads(kubectl("-n", "placement", "get", "deployment", "placement", "-o", "json").stdout)
    spec = stored["spec"]["template"]["spec"]
    assert {volume["secret"]["defaultMode"] for volume in spec["volumes"] if "secret" in volume} == {0o440}
    (configuration,) = [each["configMap"] for each in spec["volumes"] if "configMap" in each]
    assert (
        json.loads(
            kubectl("-n", "placement", "get", "configmap", configuration["name"], "-o", "json").stdout
        )["data"]["placement.conf"]
        == (_BASE / "placement.conf").read_text()
    )
    for kind in ("services", "networkpolicies", "poddisruptionbudgets", "deployments"):
        kubectl("-n", "placement", "delete", kind, "--all", "--wait=false")


@pytest.mark.skipif(not _OWN, reason="NOT RUN: no kubectl is installed")
def test_the_kubectl_of_this_machine_renders_it(tmp_path):
    finished = subprocess.run(
        [str(_OWN), "kustomize", str(_BASE)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    manifests = list(yaml.safe_load_all(finished.stdout))
    generated = [each["metadata"]["name"] for each in manifests if each["kind"] == "ConfigMap"]
    volumes = found(manifests, "Deployment", "placement")["spec"]["template"]["spec"]["volumes"]
    assert [each["configMap"]["name"] for each in volumes if "configMap" in each] == generated


@pytest.mark.skipif(not _OWN, reason="NOT RUN: no kubectl is installed")
def test_the_overlay_of_the_page_brings_its_image(tmp_path):
    (overlay,) = re.findall(r"^```yaml\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shutil.copytree(_BASE, tmp_path / "placement" / "etc" / "kubernetes")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(overlay)
    finished = subprocess.run(
        [str(_OWN), "kustomize", str(tmp_path / "mine")], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    images = re.findall(r"image: (\S+)", finished.stdout)
    assert images == ["registry.example.org/placement:1.0"] * 3


def test_the_command_knows_the_arguments_and_the_options():
    manifests = read()
    program, *arguments = container(manifests, "placement")["args"]
    assert program == "serve"
    serving = Serve(None, None).get_parser("serve").parse_args(arguments)
    (port,) = container(manifests, "placement")["ports"]
    assert serving.port == port["containerPort"]
    sync = container(manifests, "placement-sync")
    assert sync["args"][:2] == ["sync", "kubernetes"]
    following = SyncKubernetes(None, None).get_parser("sync kubernetes").parse_args(sync["args"][2:])
    assert following.health_port == sync["ports"][0]["containerPort"]
    configured = settings.load([str(_BASE / "placement.conf")])
    assert configured.kubernetes.own_cluster is None
    assert following.lease.namespace == found(manifests, "Role", "placement-sync")["metadata"]["namespace"]


def test_only_the_upgrade_has_the_password_of_the_owner_of_the_tables():
    pod = found(read(), "Deployment", "placement")["spec"]["template"]["spec"]
    (upgrade,), (service,) = pod["initContainers"], pod["containers"]
    environment = {each["name"]: each["value"] for each in upgrade["env"]}
    folder = Path(environment["OS_PLACEMENT_DATABASE__PASSWORD_FILE"]).parent
    volumes = {Path(each["mountPath"]): each["name"] for each in upgrade["volumeMounts"]}
    mounted = {each["name"] for each in service["volumeMounts"]}
    assert volumes[folder] not in mounted
    assert "database" not in volumes.values()
    configured = settings.load([str(_BASE / "placement.conf")])
    owner, user = environment["OS_PLACEMENT_DATABASE__CONNECTION"], configured.placement_database.connection
    assert owner.replace("placement_owner@", "placement@") == user


def test_room_on_nodes_is_bounded():
    for name in ("placement", "placement-sync"):
        volumes = found(read(), "Deployment", name)["spec"]["template"]["spec"]["volumes"]
        assert all(each["emptyDir"].get("sizeLimit") for each in volumes if "emptyDir" in each)


def test_files_that_the_configuration_names_are_mounted():
    mounts = {Path(each["mountPath"]) for each in container(read(), "placement")["volumeMounts"]}
    configured = settings.load([str(_BASE / "placement.conf")])
    for file in (
        configured.placement_database.password_file,
        configured.api.tokens_file,
        configured.ssl.cert_file,
        configured.ssl.key_file,
    ):
        assert Path(file).parent in mounts


@pytest.mark.parametrize("name", ["placement", "placement-sync"])
def test_pods_are_probed_bounded_and_nobody_in_particular(name: str):
    manifests = read()
    pod = found(manifests, "Deployment", name)["spec"]["template"]
    first = pod["spec"]["containers"][0]
    assert first["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert first["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    for each in (*pod["spec"].get("initContainers", []), first):
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    accounts = [each["metadata"]["name"] for each in manifests if each["kind"] == "ServiceAccount"]
    assert pod["spec"]["serviceAccountName"] in accounts
    labels = pod["metadata"]["labels"].items()
    budget = found(manifests, "PodDisruptionBudget", name)["spec"]
    policy = found(manifests, "NetworkPolicy", name)["spec"]
    for selector in (budget["selector"], policy["podSelector"]):
        assert selector["matchLabels"].items() <= labels
    (ingress,) = policy["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [first["ports"][0]["containerPort"]]
