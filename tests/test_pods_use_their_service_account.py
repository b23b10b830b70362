"""Inside a cluster the account of the pod is used; outside a kubeconfig that is made as the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from placement.engine.domain.errors import PlacementError
from placement.server.binders import KubeconfigBinders
from placement.sync import api_server
from placement.sync.api_server import ApiServer, ApiServerError
from tests.api_server import write_kubeconfig
from tests.real_kubernetes import ControlPlane

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "kubernetes.md"
_ACCOUNT = "/api/v1/namespaces/placement/serviceaccounts/placement-sync"
_KUBECTL = shutil.which("kubectl")


@pytest.fixture
def inside(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    """This process is a pod with the account of the synchronization; its user has a kubeconfig, too."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = control_plane.call("POST", f"{_ACCOUNT}/token", request)["status"]["token"]
    (tmp_path / "token").write_text(token)
    host, port = control_plane.url.removeprefix("https://").split(":")
    monkeypatch.setattr(api_server, "TOKEN_FILE", str(tmp_path / "token"))
    authority = control_plane.folder / "certificates" / "apiserver.crt"
    monkeypatch.setattr(api_server, "AUTHORITY_FILE", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("NO_PROXY", host)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube" / "config", ("elsewhere", "http://127.0.0.1:9"))
    return control_plane


def test_a_pod_uses_its_account_and_has_its_rights(inside: ControlPlane):
    server = ApiServer()
    assert server.url == inside.url
    assert next(server.pages("/api/v1/pods")).items is not None
    with pytest.raises(ApiServerError, match="forbidden"):
        server.get("/api/v1/namespaces/placement/secrets")


def test_the_own_cluster_is_bound_with_the_account_and_others_are_told(inside: ControlPlane):
    binders = KubeconfigBinders(None, "edge")
    assert binders.of("edge").pod("default", "nobody") is None
    with pytest.raises(PlacementError, match="of cluster edge only"):
        binders.of("core")


def test_a_kubeconfig_that_is_named_comes_first(inside: ControlPlane, monkeypatch, tmp_path):
    named = write_kubeconfig(tmp_path / "named", ("lab", "http://127.0.0.1:10"))
    assert ApiServer(str(named)).url == "http://127.0.0.1:10"
    monkeypatch.setenv("KUBECONFIG", str(named))
    assert ApiServer().url == "http://127.0.0.1:10"


def test_outside_it_is_the_user_s_own(inside: ControlPlane, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert ApiServer().url == "http://127.0.0.1:9"


def has_tokens() -> bool:
    """Whether there is a kubectl that makes tokens; 1.24 is the first."""
    if not _KUBECTL:
        return False
    asked = subprocess.run([_KUBECTL, "create", "token", "--help"], capture_output=True, check=False)
    return b"--duration" in asked.stdout


@pytest.mark.skipif(not has_tokens(), reason="NOT RUN: no kubectl that makes tokens is installed")
def test_the_recipe_of_the_page_makes_a_kubeconfig(control_plane: ControlPlane, tmp_path: Path):
    (recipe,) = re.findall(r"^```\n(kubectl [^`]*create token [^`]*)```$", _PAGE.read_text(), re.MULTILINE)
    environment = {
        **os.environ,
        "KUBECONFIG": str(control_plane.kubeconfig("recipe", "admin", "lab")),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        ["bash", "-ec", recipe], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    made = tmp_path / "edge.kubeconfig"
    assert made.stat().st_mode & 0o077 == 0
    server = ApiServer(str(made), "edge")
    assert json.dumps(next(server.pages("/api/v1/pods")).items)
    with pytest.raises(ApiServerError, match="forbidden"):
        server.get("/api/v1/namespaces/placement/secrets")
