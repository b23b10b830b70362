"""What goes wrong around Kubernetes is said in words that lead to its cause."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placement.pods.decide.explanation import in_plain_words
from tests.api_server import write_kubeconfig
from tests.commands import run
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest


def test_numa_hints_are_told_in_words():
    said = in_plain_words(
        "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [01] among [01 10 11]"
    )
    assert "cpu fits on NUMA nodes 0+1; memory fits on NUMA node 0 or NUMA node 1 or NUMA nodes 0+1" in said
    assert in_plain_words("Insufficient cpu") == "Insufficient cpu"


def test_the_extender_explains_an_unaligned_pod(api):
    pod = pod_manifest("12", numa={"numaTopologyPolicy": "SingleNUMANode"})
    pod["metadata"]["name"] = "wide"
    asked = {"Pod": pod, "NodeNames": ["n1"]}
    answer = cluster_of(api, "n1").post(f"{CLUSTER}/extender/filter", asked).json
    reasons = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    assert "NUMA" in reasons["n1"]
    assert "cpu fits on NUMA nodes 0+1" in reasons["n1"]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment leads to no Kubernetes, and no proxy is asked for one on loopback."""
    for name in os.environ:
        if name.startswith(("KUBE", "PLACEMENT")):
            monkeypatch.delenv(name)
    for name, text in (("HOME", str(tmp_path)), ("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")):
        monkeypatch.setenv(name, text)


def sync(*arguments: str, url: str = "http://127.0.0.1:1") -> str:
    """What the command says that cannot work."""
    ended = run("--url", url, "sync", "kubernetes", "--cluster", "lab", "--once", *arguments)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_missing_kubeconfig_is_called_that():
    assert "--kubeconfig is not given" in sync()


def test_a_wrong_token_is_named_by_its_option(served, api_server, tmp_path):
    wrong = write_kubeconfig(tmp_path / "wrong", ("lab", api_server.url), token="wrong")
    assert f"in the kubeconfig {wrong}" in sync("--kubeconfig", str(wrong), url=served.url)


def test_patience_with_claims_is_longer_than_any_bind():
    for seconds in ("179", "-1", "nan", "inf", "soon"):
        assert "--claim-patience" in sync("--claim-patience", seconds), seconds
