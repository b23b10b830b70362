"""What goes wrong around Kubernetes is said in words that lead to its cause."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from placement.pods.cycle import in_plain_words
from tests.api_server_http import write_kubeconfig
from tests.kubernetes import node_manifests, pod_manifest


def test_numa_hints_are_told_in_words():
    said = in_plain_words(
        "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [01] among [01 10 11]"
    )
    assert "cpu fits on NUMA nodes 0+1; memory fits on NUMA node 0 or NUMA node 1 or NUMA nodes 0+1" in said
    assert in_plain_words("Insufficient cpu") == "Insufficient cpu"


def test_the_extender_explains_an_unaligned_pod(api):
    cluster = "/ext/v1/clusters/edge"
    assert api.put(cluster).status_code == 201
    assert api.put(f"{cluster}/nodes/n1", node_manifests("n1")).status_code == 201
    pod = pod_manifest("12", numa={"numaTopologyPolicy": "SingleNUMANode"})
    pod["metadata"]["name"] = "wide"
    answer = api.post(f"{cluster}/extender/filter", {"Pod": pod, "NodeNames": ["n1"]}).json
    reasons = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    assert "NUMA" in reasons["n1"]
    assert "cpu fits on NUMA nodes 0+1" in reasons["n1"]


def sync(url: str, *arguments: str, home: Path, **environment: str) -> str:
    """What the command says that cannot work."""
    command = [sys.executable, "-m", "placement.client", "--url", url, "sync", "kubernetes"]
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "PLACEMENT"))}
    clean |= {"HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **environment}
    ended = subprocess.run(
        [*command, "--cluster", "lab", "--once", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean,
    )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_missing_kubeconfig_is_called_that(served, tmp_path):
    said = sync(served.url, home=tmp_path)
    assert "--kubeconfig is not given" in said


def test_a_wrong_token_is_named_by_its_option(served, api_server, tmp_path):
    wrong = write_kubeconfig(tmp_path / "wrong", ("lab", api_server.url), token="wrong")
    said = sync(served.url, "--kubeconfig", str(wrong), home=tmp_path)
    assert f"in the kubeconfig {wrong}" in said


@pytest.mark.parametrize("seconds", ["179", "-1", "nan", "inf", "soon"])
def test_patience_with_claims_is_longer_than_any_bind(served, tmp_path, seconds):
    assert "--claim-patience" in sync(served.url, "--claim-patience", seconds, home=tmp_path)
