"""`placement serve --demo`: loads the examples once, keeps data over restarts, and its printed calls work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import requests

from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import RunningServer, database_url, running_service

CURL = Path(__file__).parent / "curl.py"
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


def get_text(url: str, path: str, status: int = 200) -> str:
    session = requests.Session()
    session.trust_env = False
    answer = session.get(url + path, headers=HEADERS, timeout=PATIENCE_SECONDS)
    assert answer.status_code == status, answer.text
    return answer.text


def get(url: str, path: str) -> dict:
    return json.loads(get_text(url, path))


def clusters_of(url: str) -> list[dict]:
    return get(url, "/ext/v1/clusters?include=use")["clusters"]


def run(call: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A printed call as a person pastes it; a machine with only Python gets a stand-in for curl."""
    environment = dict(os.environ)
    if shutil.which("curl") is None:
        stand_in = directory / "curl"
        stand_in.write_text(f"#!{sys.executable}\n{CURL.read_text()}")
        stand_in.chmod(0o755)
        environment["PATH"] = f"{directory}:{environment['PATH']}"
    return subprocess.run(
        ["sh", "-c", call], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def printed_calls(log: str) -> list[str]:
    """The commands of the greeting: paragraphs that are indented, the first of which sets up a terminal."""
    return [block for block in re.split(r"\n\s*\n", log) if re.match(r"   \S", block)]


def awaited_calls(log: Path) -> list[str]:
    """The same, when the master has written them: workers may answer before."""
    eventually(9, lambda: len(printed_calls(log.read_text())))
    return printed_calls(log.read_text())


def test_examples_are_loaded_printed_calls_work_twice_and_data_stays(tmp_path: Path) -> None:
    with database_url("sqlite", migrated=False) as connection:
        with running_service(connection, arguments=["--demo"]) as server:
            clusters = {each["name"]: (each["hosts"], each["nodes"]) for each in clusters_of(server.url)}
            assert clusters == {"batch": (10, 10), "cloud": (4, 0), "edge": (8, 8)}
            assert "example cluster cloud: 4 hosts, 4 instances." in server.log.read_text()
            once, twice = answers_of_calls(server, tmp_path), answers_of_calls(server, tmp_path)
            assert [finished.returncode for finished in once + twice] == 16 * [0], once
            # What is released says nothing.
            assert [bool(finished.stdout) for finished in once] == [True, True, True, False] * 2
            assert "edge/edge-01/core-" in once[0].stdout
            assert "PCPU=2" in once[1].stdout
            assert once[1].stdout == twice[1].stdout
            assert "edge/edge-01" in once[2].stdout
            assert '"allocation_requests": [' in once[4].stdout
            assert json.loads(once[5].stdout)["consumer_uuid"] in server.log.read_text()
            assert once[5].stdout == twice[5].stdout
            assert '"name": "edge-01"' in once[6].stdout
            before = get(server.url, "/ext/v1/clusters/edge/nodes/edge-01")
            providers = len(get(server.url, "/resource_providers")["resource_providers"])
        with running_service(connection, arguments=["--demo"]) as server:
            assert get(server.url, "/ext/v1/clusters/edge/nodes/edge-01") == before
            assert len(get(server.url, "/resource_providers")["resource_providers"]) == providers


def test_the_log_begins_with_what_was_started(demonstration: RunningServer) -> None:
    said = (
        r"placement-forest \d\S+, Python 3",
        r"database sqlite:///\S+, schema \d+",
        r"callers: noauth2; workers: 1",
        r"TLS: no",
        r"loaded \d+ providers in \d+\.\d seconds",
    )
    for line in said:
        eventually(True, lambda line=line: bool(re.search(line, demonstration.log.read_text())))


def test_the_demonstration_shows_what_an_operator_meets(demonstration: RunningServer) -> None:
    """Pods of all classes, a gang, reservations, and nodes that are full, overfull, cordoned and tainted."""
    at = f"{demonstration.url}/ext/v1/clusters"
    pods = [pod for cluster in ("batch", "edge") for pod in get(at, f"/{cluster}/pods")["pods"]]
    assert all(pod["node"] for pod in pods)
    assert {pod["qos_class"] for pod in pods} == {"LSE", "LSR", "LS", "BE"}
    assert {"ml/trainer-0", "ml/trainer-1"} <= {f"{pod['namespace']}/{pod['name']}" for pod in pods}
    reservations = get(at, "/batch/reservations")["reservations"]
    assert [len(each["current_owners"]) for each in reservations] == [1, 0]
    shown = {name: get(at, f"/batch/nodes/{name}")["resources"] for name in ("batch-01", "batch-02")}
    overfull, full = shown["batch-01"]["CUSTOM_BATCH_CPU"], shown["batch-02"]["CUSTOM_NODE_CPU_MILLI"]
    assert overfull["used"] > overfull["capacity"]
    assert 0.9 < full["used"] / full["capacity"] <= 1
    page = get_text(demonstration.url, "/ui/refusals")
    assert {"batch-03", "batch-04"} <= set(re.findall(r"batch-\d+", page))
    assert ">8 GiB<" in page, "what a reservation keeps is shown with its unit"
    typed = get_text(demonstration.url, "/ui/why?kind=query&query=resouces%3DPCPU:4", 400)
    assert "<mark>resouces</mark>" in typed
    assert ">resources</a>?" in typed
    consumers = get_text(demonstration.url, "/ui/consumers")
    named = ("ml/trainer-0", "reservation release-builds", "shop", "cloud/compute-02")
    assert all(f">{name}<" in consumers for name in named)


def answers_of_calls(server: RunningServer, directory: Path) -> list[subprocess.CompletedProcess[str]]:
    """What each call prints, in a terminal that was set up as the greeting says."""
    setting, *calls = awaited_calls(server.log)
    return [run(f"{setting}\n{call}", directory) for call in calls]
