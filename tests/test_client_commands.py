"""The client commands of `placement` against a running service: what they print, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import cliff.command
import pytest
import requests
import yaml

from placement.client.cli import Catalog, main
from placement.client.tables import heading
from placement.pods.koordinator.settings import SETTINGS as SETTINGS_OF_CLUSTERS
from placement.pods.koordinator.settings import scheduler_settings
from placement.server.demonstration import examples
from tests.claimants import Claimant
from tests.client import Client
from tests.commands import refusal, run
from tests.kubernetes import MIXED, ROWS, STATUS, node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.reservations import WEB, reservation
from tests.server import served

CONSUMER = "b43dbd27-06a5-4dc9-a073-feda931c578a"
NODE = examples() / "edge" / "nodes" / "edge-01.yaml"
POD = examples() / "pod.yaml"
PINNED = ["--vcpus", "2", "--ram", "512", "--property", "hw:cpu_policy=dedicated"]
NOBODY_LISTENS = "http://127.0.0.1:1"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def placement(examples_url: str) -> Run:
    """The command, pointed at the service, that has to end well, with 1 where nothing fits."""

    def succeed(*arguments: str, status: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        finished = run("--url", examples_url, *arguments, **options)
        assert finished.returncode == status, finished.stderr
        return finished

    return succeed


@pytest.fixture
def rows(placement: Run) -> Callable[..., Any]:
    """What a command prints as JSON."""
    return lambda *arguments, **options: json.loads(placement(*arguments, "-f", "json", **options).stdout)


@pytest.fixture
def failure(examples_url: str) -> Callable[..., str]:
    """The one line that a failing command prints."""
    return lambda *arguments: refusal("--url", examples_url, *arguments)


PRINTED = [
    ["candidates", "resources=PCPU:2", "limit=2"],
    ["candidates", "resources=PCPU:2", "limit=2", "order_by=pack"],
    ["explain", "resources=PCPU:2"],
    ["flavor", "explain", *PINNED],
    ["pod", "explain", "edge", str(POD)],
    ["tree", "edge/edge-01"],
    ["cluster", "list"],
    ["node", "list", "edge"],
    ["node", "show", "edge", "edge-01"],
    ["allocation", "list", "--cluster", "edge"],
    ["allocation", "show", CONSUMER],
    ["flavor", "candidates", *PINNED, "--limit", "2"],
    ["cluster", "show", "edge"],
    ["flavor", "translate", *PINNED],
]


@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_lists_and_details_come_in_every_format(placement, arguments):
    printed = json.loads(placement(*arguments, "-f", "json").stdout)
    assert printed
    assert yaml.safe_load(placement(*arguments, "-f", "yaml").stdout) == printed
    header, *lines = csv.reader(io.StringIO(placement(*arguments, "-f", "csv").stdout))
    if isinstance(printed, list):
        assert (header, len(lines)) == (list(printed[0]), len(printed))
        for line, row in zip(lines, printed, strict=True):
            plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
            cells = dict(zip(header, line, strict=True))
            assert {name: cells[name] for name in plain} == {
                name: "" if value is None else str(value) for name, value in plain.items()
            }, "numbers and times are those of the other formats"
        top = placement(*arguments, "-f", "table", "--wide").stdout.splitlines()[1]
        # Scores of which there are none are no column for people.
        assert all(f" {heading(name)} " in top for name in header if name != "score")
    else:
        assert (header, len(lines), len(lines[0])) == (list(printed), 1, len(printed))
        table = placement(*arguments).stdout
        assert all(f"| {heading(name)} " in table for name in header)


def test_candidates_name_roots_and_providers_with_their_amounts_and_scores(rows):
    listed = rows("candidates", "resources=MEMORY_MB:65536,PCPU:2", "limit=2")
    assert {row["#"] for row in listed} == {1, 2}
    (memory, core) = [row for row in listed if row["#"] == 1]
    assert memory["root"] == core["root"] == "edge/edge-01"
    assert (memory["provider"], memory["amounts"]) == ("edge/edge-01/numa-0", {"MEMORY_MB": 65536})
    assert core["provider"].startswith("edge/edge-01/core-0-")
    assert (core["amounts"], core["groups"]) == ({"PCPU": 2}, ["(base)"])
    listed = rows("candidates", "resources=CUSTOM_PODS:1", "limit=18")
    assert {row["root"].split("/")[0] for row in listed} == {"batch", "edge"}
    # One node is cordoned.
    assert len(listed) == 17
    assert len(rows("candidates", "resources=CUSTOM_PODS:1", "limit=18", "--closed")) == 18
    ordered = ["limit=3", "cluster=edge", "order_by=MostAllocated"]
    listed = rows("candidates", "resources=MEMORY_MB:65536,PCPU:2", *ordered)
    scores = [row["score"] for row in listed]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[0] <= 100
    assert {row["root"].split("/")[0] for row in listed} == {"edge"}
    (row,) = rows("candidates", "resources=CUSTOM_PODS:1", "limit=1", "cluster=edge", "order_by=none")
    assert row["score"] is None
    listed = rows("flavor", "candidates", *PINNED, "--vcpus", "1", "--cluster", "batch", "--limit", "3")
    assert {(row["#"], row["root"].split("/")[0]) for row in listed} == {(n, "batch") for n in (1, 2, 3)}


def test_what_is_no_row_is_said_aside(placement):
    finished = placement("candidates", "-f", "json", "resources=VCPU:100000", "cluster=edge", status=1)
    way = "Nothing fits; `placement {}` with the same words says why."
    assert (json.loads(finished.stdout), finished.stderr) == ([], f"{way.format('explain')}\n")
    finished = placement("flavor", "candidates", *PINNED, "--vcpus", "9999", "--pcpu-fallback", status=1)
    fallback = "No dedicated CPUs are free; these candidates give shared ones."
    assert finished.stderr.splitlines() == [fallback, way.format("flavor explain")]


def test_a_tree_is_drawn_from_any_provider_with_bars_and_a_character_per_core(placement, rows, monkeypatch):
    shown = placement("node", "show", "edge", "edge-01").stdout
    lines = shown.splitlines()
    assert lines[0] == "edge/edge-01"
    assert "│  CUSTOM_NODE_CPU_MILLI  ██████··············  20000/60000" in lines
    # Core 0 is reserved, then come the six cores of one consumer.
    at = lines.index("│     PCPU  12/30 on 16 providers, core-0-0 to core-0-15; - offers none")
    assert lines[at + 1].strip("│ ") == "-██████·········"
    assert "└─ numa-1" in lines
    drawn = placement("tree", "edge/edge-01").stdout
    assert shown.startswith(drawn)
    assert placement("tree", "edge/edge-01/core-0-3").stdout == drawn
    listed = rows("tree", "edge/edge-01")
    (memory,) = [
        row for row in listed if (row["provider"], row["resource"]) == ("edge/edge-01/numa-0", "MEMORY_MB")
    ]
    assert (memory["parent"], memory["used"]) == ("edge/edge-01", 24576)
    assert memory["capacity"] > 24576
    assert "HW_NUMA_ROOT" in memory["traits"]
    (uuid,) = {row["uuid"] for row in listed if row["provider"] == "edge/edge-01/numa-1"}
    for name in (uuid, uuid.replace("-", "").upper()):
        assert placement("tree", name).stdout == drawn
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    drawn = placement("tree", "edge/edge-01").stdout
    assert drawn.isascii()
    assert "`- numa-1" in drawn


def test_a_cluster_and_its_nodes_come_and_go(placement, rows, tmp_path):
    created = rows("cluster", "create", "lab", "--description", "two hosts", "--profile", "koord-scheduler")
    assert (created["name"], created["description"], created["nodes"]) == ("lab", "two hosts", 0)
    manifests = list(yaml.safe_load_all(NODE.read_text()))
    twins = yaml.safe_load_all(NODE.read_text().replace("edge-01", "edge-99"))
    second = [{**manifest, "metadata": {**manifest["metadata"], "uid": "twin"}} for manifest in twins]
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump({"kind": "List", "items": [*manifests, *second]}))
    imported = rows("node", "import", "lab", str(file))
    assert [(row["name"], row["created"], row["warnings"]) for row in imported] == [
        ("edge-01", 35, []),
        ("edge-99", 35, []),
    ]
    again = rows("node", "import", "lab", "-", input=file.read_text())
    assert [(row["created"], row["changed"], row["deleted"]) for row in again] == [(0, 0, 0)] * 2
    assert [node["name"] for node in rows("node", "list", "lab")] == ["edge-01", "edge-99"]
    assert rows("cluster", "show", "lab")["nodes"] == 2
    for node in ("edge-01", "edge-99"):
        assert placement("node", "delete", "lab", node).stdout == ""
    assert placement("cluster", "delete", "lab").stdout == ""
    assert "lab" not in [cluster["name"] for cluster in rows("cluster", "list")]


SCORING = {"type": "MostAllocated", "resources": [{"name": "cpu"}]}
# Option: (value, member of the cluster), and the value there if it is another.
SETTINGS = {
    "--profile": ("koord-scheduler", "profile"),
    "--description": ("a lab", "description"),
    "--default-cpu-bind-policy": ("SpreadByPCPUs", "defaultCPUBindPolicy"),
    "--default-cpu-exclusive-policy": ("PCPULevel", "defaultCPUExclusivePolicy"),
    "--default-numa-topology-policy": ("Restricted", "defaultNUMATopologyPolicy"),
    "--numa-allocate-strategy": ("DistributeEvenly", "numaAllocateStrategy"),
    "--scoring": (json.dumps({"candidates": "pack"}), "scoring", {"candidates": "pack"}),
    "--host-scoring": (json.dumps(SCORING), "hostScoring", SCORING),
    "--numa-scoring": (json.dumps(SCORING), "numaScoring", SCORING),
    "--guaranteed-qos": ("LSE", "guaranteedQoS"),
    "--sub-priority-immutable": ("false", "subPriorityImmutable", False),
    "--loop-nodes": ("marked", "loopNodes"),
    "--node-label": ("zone", "nodeLabels", ["zone"]),
}


def test_every_setting_of_a_cluster_is_set_shown_and_unset(failure, placement, rows):
    expected = {name: (value, *other)[-1] for value, name, *other in SETTINGS.values()}
    assert expected.keys() == SETTINGS_OF_CLUSTERS | {"description"}
    placement("cluster", "create", "tuned", "--numa-allocate-strategy", "MostAllocated", "--scoring", "pack")
    given = [text for option, (value, *_) in SETTINGS.items() for text in (option, value)]
    shown = rows("cluster", "set", "tuned", *given)
    assert {name: shown[name] for name in expected} == expected
    changed = {**shown, "description": "still a lab"}
    assert rows("cluster", "set", "tuned", "--description", "still a lab") == changed
    refused = failure("cluster", "create", "tuned", "--description", "new")
    assert "Cluster tuned exists already; `cluster set` changes its settings." in refused
    assert rows("cluster", "show", "tuned")["description"] == "still a lab"
    assert "PCPULevel" in placement("cluster", "show", "tuned").stdout
    assert "scoring" not in rows("cluster", "unset", "tuned", "--scoring")
    bare = rows("cluster", "unset", "tuned", *SETTINGS)
    assert (bare["profile"], bare["description"]) == ("design", "")
    assert bare.keys() == {"name", "nodes", "profile", "description", "aggregate", "uuid"}
    shown = placement("cluster", "show", "tuned").stdout
    told = dict(re.findall(r"\| (\S+) +\| (.+) \(default\) ", shown))
    assert (told.pop("numaAllocateStrategy"), told.pop("nodeLabels")) == ("follows scoring", "none")
    told |= {"subPriorityImmutable": True, "scoring": told.pop("Scoring")}
    assert scheduler_settings(told) == scheduler_settings({})
    assert len(told) == 7
    placement("cluster", "delete", "tuned")


def test_allocations_are_shown_and_released(failure, placement, rows):
    consumer = "f4666367-0df9-42a2-8642-9c1223dbc6e7"
    held = rows("allocation", "show", consumer)
    assert {row["provider"] for row in held} == {"edge/edge-04", "edge/edge-04/numa-1"}
    assert {(row["project"], row["user"], row["type"]) for row in held} == {("video", "origin", "LS")}
    assert placement("allocation", "delete", consumer).stdout == ""
    assert failure("allocation", "show", consumer) == f"consumer {consumer} holds nothing"
    assert failure("allocation", "delete", consumer) == f"No allocations for consumer '{consumer}'"


def test_a_request_is_claimed_for_a_new_consumer_and_again_for_the_same(failure, placement, rows):
    wanted = ["resources=PCPU:2", "resources_A=MEMORY_MB:64", "cluster=edge", "order_by=pack"]
    owner = ["--project", "radio", "--user", "cell", "--type", "POD"]
    held = rows("claim", *owner, *wanted)
    (consumer,) = {row["consumer"] for row in held}
    assert [row["amounts"] for row in held] == [{"PCPU": 2}, {"MEMORY_MB": 64}]
    assert [row["groups"] for row in held] == [["(base)"], ["_A"]]
    assert all(row["provider"].startswith("edge/") for row in held)
    shown = rows("allocation", "show", consumer)
    assert {row["uuid"] for row in shown} == {row["uuid"] for row in held}
    assert {(row["project"], row["user"], row["type"]) for row in shown} == {("radio", "cell", "POD")}
    again = rows("claim", "--consumer", consumer, *owner, *wanted)
    assert sorted(again, key=str) == sorted(held, key=str)
    other = failure("claim", "--consumer", consumer, "resources=PCPU:1")
    assert other == f"consumer_uuid: {consumer} already holds something else than the query asks for"
    placement("allocation", "delete", consumer)


def test_a_request_is_claimed_for_several_consumers_or_for_none(failure, placement, rows):
    wanted = ["resources=CUSTOM_PODS:1", "cluster=edge"]
    consumers = {row["consumer"] for row in rows("claim", "--count", "3", *wanted)}
    assert len(consumers) == 3
    for consumer in consumers:
        placement("allocation", "delete", consumer)
    refused = failure("claim", "--count", "2", "resources=PCPU:64")
    assert refused.startswith("members[0-1]: no candidate: 64 PCPU free")
    assert refused.count("64 PCPU free") == 1
    refused = failure("claim", "resources=PCPU:64")
    assert refused.startswith("no candidate: 64 PCPU free: 0 of 21 hosts, 0 of 592 providers; ")
    assert re.search(r"; \w+/\w+-\d+/core-[0-9-]+ \([0-9a-f-]{36}\) lacks 62 PCPU: it has 2 free$", refused)


def test_consumers_are_claimed_apart_together_and_into_groups(failure, placement, rows):
    wanted = ["resources=CUSTOM_PODS:1", "cluster=edge"]
    consumer = str(uuid.uuid4())

    def hosts(*options: str) -> list[str]:
        return [row["provider"] for row in rows("claim", *options, *wanted)]

    assert len({*hosts("--dry-run", "--count", "3", "--apart")}) == 3
    in_twos = Counter(hosts("--dry-run", "--count", "4", "--per-host", "2"))
    assert max(in_twos.values()) <= 2
    (first,) = hosts("--consumer", consumer, "--apart", "--group", "web")
    others = hosts("--dry-run", "--count", "7", "--policy", "anti-affinity", "--group", "web")
    assert len({first, *others}) == 8
    partial = placement(
        "claim", "--dry-run", "--count", "8", "--minimum", "1", "--apart", "--group", "web", *wanted
    )
    assert "7 of 8: members[7]: no candidate" in partial.stderr
    placement("allocation", "delete", consumer)
    flavors = rows("claim", "--dry-run", "--count", "2", "--together", *PINNED, "--cluster", "cloud")
    assert len({row["provider"].split("/")[1] for row in flavors}) == 1


def test_an_explanation_ends_at_the_condition_that_nobody_meets(placement):
    told = placement("explain", "resources=CUSTOM_PODS:1,PCPU:64", status=1).stdout.splitlines()
    assert told[:6] == [
        "Fits nowhere: condition 3 leaves no host of 17.",
        "",
        " 1  open hosts: 21 of 22 hosts",
        " 2  1 CUSTOM_PODS free: 17 of 21 hosts, 17 of 17 providers",
        " 3  64 PCPU free: 0 of 17 hosts, 0 of 528 providers",
        "      No single provider has more than 2 PCPU free.",
    ]
    assert told[7:] == [
        # Only nodes have pods, so the cores of no other host come near.
        "      edge/edge-01/core-0-[7-11] each lacks 62 PCPU: it has 2 free",
    ]
    told = placement("explain", "resources=CUSTOM_PODS:1", "explain=0").stdout.splitlines()
    assert (told[0], told[2]) == (
        "Fits on 17 hosts.",
        " 1  open hosts: 21 of 22 hosts",
    )
    limited = placement("explain", "resources=CUSTOM_PODS:1", "limit=1").stdout
    assert limited.startswith("Fits on 17 hosts.\n")


def test_candidates_flavors_and_pods_are_explained_in_one_table(placement, rows, tmp_path):
    (tmp_path / "huge.yaml").write_text(yaml.safe_dump(named("huge", cpu="900")))
    pinned = ["--vcpus", "4", "--ram", "99999999", "--property", "hw:cpu_policy=dedicated"]
    second = rows("explain", "resources=PCPU:64", status=1)[1]
    figures = {"#": 2, "condition": "64 PCPU free", "came": 592, "passed": 0, "trees": 0}
    assert (second | figures, len(second["nearest"])) == (second, 5)
    for name, command in (
        ("PCPU", ["explain", "resources=PCPU:900"]),
        ("MEMORY_MB", ["flavor", "explain", *pinned]),
        ("CUSTOM_NODE_CPU_MILLI", ["pod", "explain", "edge", str(tmp_path / "huge.yaml")]),
    ):
        table = rows(*command, status=1)
        columns = ["#", "condition", "came", "passed", "trees", "nearest"]
        assert all(list(row) == columns for row in table)
        empty = next(at for at, row in enumerate(table) if row["passed"] == 0)
        assert all((row["nearest"] != []) == (at == empty) for at, row in enumerate(table))
        nearest = table[empty]["nearest"]
        assert [miss["resource_class"] for miss in nearest] == [name] * len(nearest)
        told = placement(*command, status=1).stdout.splitlines()
        noun = "node" if "pod" in command else "host"
        assert told[0].startswith(f"Fits nowhere: condition {empty + 1} leaves no {noun}")
        assert told[2 + empty].startswith(f"{empty + 1:2}  {table[empty]['condition']}: 0 of ")
        lack = f" lacks {nearest[0]['missing']} {name}: it has {nearest[0]['free']} free"
        if name.endswith("_MILLI"):
            # A pod's are told in CPUs.
            lack = f" lacks {nearest[0]['missing'] / 1000:g} CPUs: it has {nearest[0]['free'] / 1000:g} free"
        assert any(line.endswith(lack) for line in told[3 + empty :])


def test_an_explanation_of_a_pod_that_fits_counts_nodes(placement):
    told = placement("pod", "explain", "edge", str(POD)).stdout.splitlines()
    assert told[0].startswith("Fits on ")
    assert told[0].endswith((" node.", " nodes."))
    one_node = ("edge", str(POD), "--node", "edge-01")
    (place,) = json.loads(placement("pod", "preview", *one_node, "-f", "json").stdout)
    assert place["score"] is not None
    narrowed = placement("pod", "explain", *one_node).stdout
    assert narrowed.startswith("Fits on 1 node.\n")
    assert " 1  not cordoned, or the cordon is tolerated: 1 of 1 nodes\n" in narrowed


def test_a_member_of_a_gang_is_no_pod_alone(placement, tmp_path):
    manifest, file = named("member"), tmp_path / "member.yaml"
    gang = {"name": "g", "min-available": "3"}
    manifest["metadata"]["annotations"] = {
        f"gang.scheduling.koordinator.sh/{key}": text for key, text in gang.items()
    }
    file.write_text(yaml.safe_dump(manifest))
    for question in ("preview", "explain"):
        warned = placement("pod", question, "edge", str(file)).stderr
        assert "The pod belongs to gang default/g, which needs 3 members with places; this is" in warned


@pytest.fixture
def crowd(examples_url) -> Iterator[int]:
    """More consumers than fit one page, on a provider of their own."""
    count, provider = 1001, "c0ffee00-0000-4000-8000-000000000001"
    claimant = Claimant(examples_url)
    assert claimant.call("POST", "/resource_providers", {"name": "crowded", "uuid": provider}).ok
    inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": count}}}
    assert claimant.call("PUT", f"/resource_providers/{provider}/inventories", inventories).ok
    claim = Client.allocations({provider: {"VCPU": 1}}, None, project_id="crowd", user_id="crowd")
    consumers = [f"c0ffee00-0000-4000-8000-1{number:011}" for number in range(count)]
    assert claimant.call("POST", "/allocations", dict.fromkeys(consumers, claim)).ok
    yield count
    nothing = {**claim, "allocations": {}, "consumer_generation": 1}
    assert claimant.call("POST", "/allocations", dict.fromkeys(consumers, nothing)).ok
    assert claimant.call("DELETE", f"/resource_providers/{provider}").ok


def test_allocations_are_listed_page_by_page_by_what_they_are(rows, crowd):
    listed = rows("allocation", "list", "--provider", "crowded")
    assert len({row["consumer"] for row in listed}) == len(listed) == crowd
    uuid = "c0ffee00-0000-4000-8000-000000000001"
    owner = {"project": "crowd", "user": "crowd", "type": "INSTANCE", "cluster": None}
    held = {"provider": "crowded", "amounts": {"VCPU": 1}, "uuid": uuid, "dedicated_cpus": None}
    assert listed[0] == {"consumer": "c0ffee00-0000-4000-8000-100000000000", **owner, **held}
    assert len(rows("allocation", "list", "--user", "crowd", "--limit", "1000")) == 1000
    of_project = ["allocation", "list", "--project", "crowd"]
    assert rows(*of_project, "--limit", "2") == listed[:2]
    assert rows(*of_project, "--type", "unknown") == rows(*of_project, "--cluster", "edge") == []
    edge = rows("allocation", "list", "--cluster", "edge", "--type", "LSE")
    assert {(row["cluster"], row["type"]) for row in edge} == {("edge", "LSE")}
    assert CONSUMER in {row["consumer"] for row in edge}


def named(name: str, **given: Any) -> dict[str, Any]:
    """A pod with a name, which may begin with a namespace."""
    manifest = pod_manifest(**given)
    namespace, _, own = name.rpartition("/")
    manifest["metadata"].update(name=own, **({"namespace": namespace} if namespace else {}))
    return manifest


@pytest.fixture
def pods(placement, tmp_path) -> Iterator[Callable[..., str]]:
    """A cluster of two nodes, and a file of any number of pods; both are cleared away."""
    nodes, file = tmp_path / "nodes.yaml", tmp_path / "pods.yaml"
    twin = yaml.safe_dump_all([node_manifests("n2", rows=ROWS[:8])])
    placement("cluster", "create", "farm")
    nodes.write_text(f"{yaml.safe_dump(node_manifests('n1', nrt=MIXED))}---\n{twin}")
    placement("node", "import", "farm", str(nodes))

    def written(*names: str, **given: Any) -> str:
        file.write_text(yaml.safe_dump({"kind": "List", "items": [named(name, **given) for name in names]}))
        return str(file)

    yield written
    for pod in json.loads(placement("pod", "list", "farm", "-f", "json").stdout):
        placement("pod", "delete", "farm", pod["name"], "--namespace", pod["namespace"])
    for node in ("n1", "n2"):
        placement("node", "delete", "farm", node)
    placement("cluster", "delete", "farm")


def test_pods_are_placed_listed_shown_and_deleted(failure, placement, rows, pods):
    file = pods("web-0", "shop/web-1", cpu="4")
    created = rows("pod", "create", "farm", file)
    assert [(row["namespace"], row["name"], row["node"]) for row in created] == [
        ("default", "web-0", "n1"),
        ("shop", "web-1", "n2"),
    ]
    assert json.loads(created[0]["annotations"][STATUS]) == {"cpuset": created[0]["cpuset"]}
    assert rows("pod", "create", "farm", "-", input=Path(file).read_text()) == created
    listed = rows("pod", "list", "farm")
    assert {(row["name"], row["cpuset"], row["qos_class"]) for row in listed} == {
        ("web-0", created[0]["cpuset"], "LSR"),
        ("web-1", created[1]["cpuset"], "LSR"),
    }
    assert [row["name"] for row in rows("pod", "list", "farm", "--namespace", "shop")] == ["web-1"]
    assert len(rows("pod", "list", "farm", "--node", "n1", "--qos", "LSR", "--limit", "1")) == 1
    assert [row["name"] for row in rows("pod", "list", "farm", "--node", "n2")] == ["web-1"]
    shown = rows("pod", "show", "farm", "web-1", "--namespace", "shop")
    assert (shown["node"], shown["cpuset"], shown["warnings"]) == ("n2", created[1]["cpuset"], [])
    held = rows("allocation", "list", "--cluster", "farm", "--type", "POD", "--project", "farm")
    assert {row["consumer"] for row in held} == {row["consumer_uuid"] for row in listed}
    placement("pod", "delete", "farm", "web-1", "--namespace", "shop")
    gone = failure("pod", "show", "farm", "web-1", "--namespace", "shop")
    assert "web-1" in gone
    assert [row["name"] for row in rows("pod", "list", "farm")] == ["web-0"]
    (smaller,) = rows("pod", "create", "farm", pods("web-0", cpu="2"))
    assert (smaller["node"], smaller["cpuset"], smaller["remarks"]) == (
        "n1",
        "8-9",
        ["gave back CPUs 10-11 of node n1"],
    )
    (moved,) = rows(
        "pod", "create", "farm", pods("web-0", cpu="4", nodeSelector={"kubernetes.io/hostname": "n2"})
    )
    assert moved["remarks"] == ["moved from node n1 to node n2", "gave back CPUs 8-9 of node n1"]
    rows("pod", "create", "farm", pods("a", "b", cpu="1"), "-n", "small")
    everywhere = rows("pod", "list", "--limit", "1000")
    assert [row for row in everywhere if row["cluster"] == "farm"] == [
        {"cluster": "farm", **row} for row in rows("pod", "list", "farm")
    ]
    assert "edge" in {row["cluster"] for row in rows("node", "list")}
    assert len(rows("node", "list", "--limit", "1")) == 1
    assert [row["name"] for row in rows("pod", "list", "farm", "--namespace", "small")] == ["a", "b"]
    lines = placement("pod", "list", "farm", "-f", "value", "-c", "name", "--limit", "2").stdout.split()
    assert len(lines) == 2


def test_a_preview_ranks_nodes_and_tells_why_others_refuse(placement, rows, pods):
    file = pods("big", cpu="9")
    finished = placement("pod", "preview", "farm", file, "-f", "json")
    first, second = json.loads(finished.stdout)
    assert (first["#"], first["node"], first["cpuset"] != "") == (1, "n1", True)
    assert (second["#"], second["node"], second["score"]) == (None, "n2", None)
    assert second["remarks"] == ["Insufficient cpu"]
    assert finished.stderr.startswith("1/2 nodes are available")
    assert rows("pod", "list", "farm") == []
    only = rows("pod", "preview", "farm", file, "--node", "n2", "--limit", "1", status=1)
    assert [row["node"] for row in only] == ["n2"]


def test_a_pod_is_translated_to_queries_that_find_something(placement, rows, pods):
    finished = placement("pod", "translate", "farm", pods("web", cpu="4"), "-f", "json")
    queries = json.loads(finished.stdout)
    assert [row["#"] for row in queries] == list(range(1, len(queries) + 1))
    assert "not expressed: taints" in finished.stderr
    assert rows("candidates", *queries[0]["query"].split("&"), "limit=1")


def test_pods_that_are_refused_keep_no_others_from_their_places(failure, placement, rows, pods):
    file = pods("good", "worse", "good", cpu="9")
    created = placement("pod", "create", "farm", file, "-f", "json", status=1)
    assert [row["name"] for row in json.loads(created.stdout)] == ["good", "good"]
    (refused,) = created.stderr.splitlines()
    assert refused.startswith("placement: default/worse: 0/2 nodes are available: 2 Insufficient cpu.")
    assert [row["name"] for row in rows("pod", "list", "farm")] == ["good"]
    silent = run("--url", NOBODY_LISTENS, "pod", "create", "farm", file).stderr.splitlines()
    assert silent[0].startswith(f"placement: default/good: {NOBODY_LISTENS} cannot be reached")
    assert silent[1:] == ["placement: not tried: default/worse, default/good"]
    many = failure("pod", "preview", "farm", file)
    assert many == f"{file}: has 3 pods, but this command takes one"


def test_a_node_shows_whose_each_cpu_is(placement, pods, monkeypatch):
    placement("pod", "create", "farm", pods("web", cpu="4"))
    placement("pod", "create", "farm", pods("small", cpu="1", qos="LS", node="n1"))
    drawn = placement("node", "show", "farm", "n1").stdout.splitlines()
    assert drawn[drawn.index("CPUs") :] == [
        "CPUs",
        "   socket 0, numa-0: 0-7",
        "     ~· kk rs ··",
        "   socket 1, numa-1: 8-15",
        "     ██ ██ ·· ··",
        "   █ a pod's own",
        "   k pinned by kubelet",
        "   r reserved",
        "   s for the system",
        "   ~ shared, reserved by kubelet",
        "   · shared, free to be claimed",
        "Pools",
        "   LS, numa-0: 0-1,6-7",
        "   LS, numa-1: 12-15",
        "   BE, numa-0: 0-1,6-7",
        "   BE, numa-1: 8-15",
        "Pods",
        "   default/web: 8-11, its own",
        "   default/small: 0-1,6-7,12-15",
        "   kube/k: 2-3, pinned by kubelet",
    ]
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    plain = placement("node", "show", "farm", "n1").stdout
    assert plain.isascii()
    assert "     ## ## .. ..\n" in plain
    placement("pod", "create", "farm", pods("again", node="n1", status={"cpuset": "8-9"}))
    held = placement("node", "show", "farm", "n1").stdout
    assert "   default/again: unknown; of its 8-9 some also belong to default/web\n" in held
    shown = placement("pod", "show", "farm", "again").stdout
    assert all(
        text in shown for text in ("main: CPUs unknown ", "CPUs 8-9 are also held by pod default/web ")
    )


def test_dedicated_cpus_are_shown_with_what_the_consumer_holds(examples_url, placement, rows):
    consumer = "d3d1ca7e-0000-4000-8000-000000000001"
    flavor = {"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}
    claim = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    claim |= {"cluster": "edge", "flavor": flavor}
    assert Claimant(examples_url).call("POST", "/ext/v1/claims", claim).ok
    listed = rows("allocation", "list", "--project", "p", "--user", "u")
    assert {(row["consumer"], row["dedicated_cpus"]) for row in listed} == {(consumer, "0-1")}
    assert placement("allocation", "show", consumer).stderr == "dedicated CPUs of the guest: 0-1\n"
    placement("allocation", "delete", consumer)


FLAVOR = {
    "vcpus": 8,
    "ram": 512,
    "disk": 1,
    "swap": "",
    "OS-FLV-EXT-DATA:ephemeral": 0,
    "properties": {"hw:numa_nodes": "2", "resources:VCPU": "3"},
}


def test_a_flavor_is_translated_without_a_service(tmp_path):
    file = tmp_path / "flavor.json"
    file.write_text(json.dumps(FLAVOR))
    arguments = ["--url", NOBODY_LISTENS, "flavor", "translate", "--property", "resources:PCPU=5"]
    from_file = run(*arguments, "--granular", "-f", "json", str(file))
    assert from_file.returncode == 0, from_file.stderr
    answer = json.loads(from_file.stdout)
    assert answer["dedicated_cpus"] == "2-3,5-7"
    assert [cell["pcpuset"] for cell in answer["cells"]] == [[2, 3], [5, 6, 7]]
    assert answer["groups"]["_numa1"]["resources"] == {"VCPU": 1, "PCPU": 3, "MEMORY_MB": 256}
    piped = run(*arguments, "--granular", "-f", "json", "-", input=json.dumps(FLAVOR))
    assert piped.stdout == from_file.stdout
    table = run(*arguments, str(file)).stdout
    assert "1: shared 4, dedicated 5-7, 256 MiB" in table


def test_options_come_before_what_a_file_says(tmp_path):
    file = tmp_path / "flavor.json"
    file.write_text(json.dumps({**FLAVOR, "properties": "hw:cpu_policy='shared'"}))
    image = tmp_path / "image.json"
    image.write_text(json.dumps({"properties": {"trait:CUSTOM_A": "required", "os_hidden": False}}))
    translated = run(
        *("flavor", "translate", str(file), "--vcpus", "4", "--property", "hw:cpu_policy=dedicated"),
        *("--image", str(image), "--image-property", "hw_cpu_thread_policy=isolate", "--limit", "7"),
        *("--boot-from-volume", "--swap", "1025", "--pcpu-fallback", "-f", "json"),
    )
    answer = json.loads(translated.stdout)
    assert answer["groups"][""]["resources"] == {"PCPU": 4, "MEMORY_MB": 512, "DISK_GB": 2}
    assert answer["groups"][""]["required"] == ["CUSTOM_A"]
    assert answer["groups"][""]["forbidden"] == ["HW_CPU_HYPERTHREADING"]
    assert answer["querystring"].startswith("limit=7&")
    assert "VCPU%3A4" in answer["fallback_querystring"]


# Commands, and what is said of them; `~` stands for the options of a flavor.
WRONG = {
    "candidates resources=NOTHING:1": "No such resource class NOTHING.",
    "candidates colour=red": "colour: is not a parameter of this request; parameters are closed, cluster, ",
    "candidates required=X": "resources",
    "explain order_by=x resources=VCPU:1": "order_by: 'x' is not a known order",
    "claim resources=VCPU:1 limit=2": "query: limit makes no sense in a claim",
    "claim --type small resources=VCPU:1": "consumer_type: 'small' does not match",
    "allocation list --provider nobody": "nobody: no such resource provider",
    "allocation list --cluster nowhere -f csv": "cluster: No cluster nowhere found",
    "tree 00000000-0000-0000-0000-000000000000": "no such resource provider",
    "tree ''": ": no such resource provider",
    "cluster show 'a b%2F?#'": "No cluster a b%2F?# found",
    "cluster show ''": "'' is not a name: it is empty",
    "cluster delete a/b": "'a/b' is not a name: it is empty",
    "node delete edge ..": "'..' is not a name: it is empty",
    "cluster create Upper": "cluster: 'Upper' must be",
    "cluster delete edge": "Cluster edge still has 8 nodes",
    "node list nowhere": "No cluster nowhere found",
    "node show edge none": "No node none found in cluster edge",
    "node delete edge edge-01": "still has allocations",
    "node import edge /nonexistent": "/nonexistent: No such file or directory",
    "node import edge /": "/: Is a directory",
    "node import edge pyproject.toml": "pyproject.toml: Malformed YAML: did not",
    "node import edge /dev/null": "kind: the Node is missing",
    f"node import nowhere {NODE}": "edge-01: No cluster nowhere found",
    "pod list nowhere": "No cluster nowhere found",
    "pod show edge a/b": "No pod a/b found in cluster edge",
    "pod delete edge none": "none",
    "pod create edge /nonexistent": "/nonexistent: No such file or directory",
    "pod create edge /dev/null": "/dev/null: has no pods",
    f"pod create edge {NODE}": "kind: expected Pod, got 'Node'",
    "pod preview edge /dev/null": "/dev/null: has 0 pods",
    "pod translate edge pyproject.toml": "> in line 2, column 1",
    "flavor candidates ~ --cluster nowhere": "No cluster nowhere found",
    "flavor candidates ~ --property resources:CUSTOM_X=1": "CUSTOM_X",
    "flavor translate /nonexistent": "/nonexistent: No such file",
    "flavor translate README.md": "README.md: is not JSON",
    "flavor translate /dev/null": "/dev/null: is not JSON",
    "flavor translate ~ --vcpus 0": "flavor.vcpus: must be a whole number",
    "flavor candidates ~ --property hw:cpu_policy=x --property hw:numa_nodes=0": (
        "hw:cpu_policy: 'x' is not one of dedicated, shared, mixed; hw:numa_nodes: '0'"
    ),
}


MISUSED = {
    "allocation show nobody": "must be a UUID, not 'nobody'",
    "allocation delete 'a b?'": "must be a UUID, not 'a b?'",
    "claim --count 2 --consumer {CONSUMER} resources=PCPU:1": "--count: is for new consumers",
    "claim --dry-run --count 2 --soft resources=PCPU:1": "--soft: needs a rule",
    "claim --count 2": "nothing to claim: give a query such as",
    "cluster set tuned": "name at least one setting",
    "flavor translate": "--vcpus and --ram, or a FILE",
    "flavor translate - --image -": "--image: standard input already",
    "flavor translate ~ --property hw": "--property: hw is not KEY=VALUE",
    "flavor translate ~ --image-property hw": "--image-property: hw is not KEY=VALUE",
    "flavor translate ~ --limit 0": "--limit: must be a whole number from 1 on",
}


@pytest.mark.parametrize("command", MISUSED)
def test_arguments_that_make_no_sense_end_with_2(placement, command):
    arguments = shlex.split(command.replace("~", shlex.join(PINNED)).replace("{CONSUMER}", CONSUMER))
    refused = placement(*arguments, status=2)
    assert refused.stdout == ""
    assert MISUSED[command] in refused.stderr


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_clear_line(failure, command):
    assert WRONG[command] in failure(*shlex.split(command.replace("~", shlex.join(PINNED))))


def test_commands_that_do_not_exist_are_compared_with_those_that_do():
    for command, message in {
        "cluster": "cluster: no such command; did you mean cluster create or cluster delete",
        "clusters list": "clusters list: no such command; did you mean cluster list",
        "node lst": "node lst: no such command; did you mean node list?",
        "node cordon edge": "node cordon: no such command; `kubectl cordon` does it",
        "release x": "release x: no such command; did you mean allocation delete or",
        "xyzzy": "xyzzy: no such command; `placement --help` lists them",
        "--bogus cluster list": "--bogus: no such option",
    }.items():
        failed = run(*command.split())
        assert (failed.returncode, len(failed.stderr.splitlines())) == (2, 1), failed
        assert failed.stderr.startswith(f"placement: {message}"), failed


@pytest.mark.parametrize(
    ("command", "operands", "message"),
    [
        *((name, "resources", "KEY=VALUE: resources: is no") for name in ("candidates", "explain", "claim")),
        ("claim", "--consumer me resources=VCPU:1", "argument --consumer: must be a UUID, not 'me'"),
        *(("allocation list", f"--limit {n}", f"from 1 on, not '{n}'") for n in ("0", "-1", "many")),
    ],
)
def test_operands_that_make_no_sense_come_with_the_usage(command, operands, message):
    failed = run("--url", NOBODY_LISTENS, *command.split(), *operands.split())
    assert failed.returncode == 2
    assert failed.stderr.startswith(f"usage: placement {command}")
    assert message in failed.stderr


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        *(
            (
                "pod create",
                f"{{kind: Pod, metadata: {{name: good}}}}\n---\n{{kind: Pod, metadata: {bad}}}",
                said,
            )
            for bad, said in (
                *((bad, "metadata.name: a Pod has none") for bad in ("{}", "[1]", "{name: 1}")),
                ("{name: web, namespace: [1]}", "metadata.namespace: of Pod web is not text"),
            )
        ),
        ("node import", "kind: Node\n---\nkind: Node\nmetadata: [1]\n", "metadata.name: a Node has none"),
        ("node import", "node: {}\n---\nkind: Node\n", "metadata.name: a document without a kind has none"),
        ("reservation create", "{kind: Pod}", "kind: expected Reservation, got 'Pod'"),
    ],
)
def test_manifests_without_names_are_refused_before_anything_is_sent(command, text, message):
    failed = run("--url", NOBODY_LISTENS, *command.split(), "edge", "-", input=text)
    assert (failed.returncode, failed.stderr) == (1, f"placement: {message}\n")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (NOBODY_LISTENS, f"{NOBODY_LISTENS} cannot be reached"),
        ("http://nobody.invalid", "cannot be reached"),
        ("localhost:8778", "--url: localhost:8778 must start with http://HOST"),
        ("ftp://localhost", "--url: ftp://localhost must start"),
        ("http://", "--url: http:// must start"),
        ("http://localhost:x", "--url: http://localhost:x is not a URL"),
        ("http://[::1", "--url: http://[::1 is not a URL"),
    ],
)
def test_a_service_that_cannot_be_reached_is_one_clear_line(url, message):
    assert message in refusal("cluster", "list", "--url", url)


def test_a_caller_without_the_right_role_is_told_so(failure):
    assert "placement:clusters:list" in failure("--token", "nobody", "cluster", "list")
    assert "--token" in failure("--token", "grün", "cluster", "list")


class _Stranger(BaseHTTPRequestHandler):
    """A web server that has never heard of placement; at some paths it answers as OpenStack Placement."""

    def do_GET(self) -> None:
        status = 502 if "clusters/" in self.path else 404 if "status" in self.path else 200
        self.send_response(status)
        self.end_headers()
        error = {"errors": [{"detail": "The resource could not be found.\n\n   "}]}
        self.wfile.write(json.dumps(error).encode() if status == 404 else b"<html>\n hello\n</html>")

    def do_DELETE(self) -> None:
        self.send_response(500)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_is_no_placement_service_is_one_clear_line():
    with served(HTTPServer(("127.0.0.1", 0), _Stranger)) as url:
        assert "is not a Placement service" in refusal("--url", url, "cluster", "list")
        assert refusal("--url", url, "cluster", "show", "x") == "<html> hello </html>"
        assert "answers 500" in refusal("--url", url, "cluster", "delete", "x")
        said = f"{url} does not know /ext/v1/status: it is OpenStack Placement, or an older release"
        assert refusal("--url", url, "status") == said


def test_rows_are_written_before_the_last_page_is_asked_for(examples_url, crowd):
    """A proxy that passes one page only lets see how far the command came."""

    class Gate(_Stranger):
        def do_GET(self) -> None:
            status, content = 503, json.dumps({"errors": [{"detail": "no second page"}]}).encode()
            if "after=" not in self.path:
                url, headers = f"{examples_url}{self.path}", dict(self.headers)
                answer = requests.get(url, headers=headers, timeout=PATIENCE_SECONDS)
                status, content = answer.status_code, answer.content
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

    with served(HTTPServer(("127.0.0.1", 0), Gate)) as url:
        cut = run("--url", url, "allocation", "list", "--user", "crowd", "-f", "value", "-c", "consumer")
    assert (cut.returncode, cut.stderr) == (1, "placement: no second page\n")
    assert len(cut.stdout.splitlines()) == 1000


def test_url_and_token_come_from_the_environment(examples_url, monkeypatch):
    monkeypatch.setenv("PLACEMENT_URL", f"{examples_url}/")
    monkeypatch.setenv("PLACEMENT_TOKEN", "nobody")
    assert "placement:clusters:list" in refusal("cluster", "list")
    assert run("--token", "admin", "cluster", "list").returncode == 0


def test_a_proxy_is_not_asked_for_what_is_on_loopback(placement, monkeypatch):
    monkeypatch.setenv("http_proxy", NOBODY_LISTENS)
    assert "edge" in placement("cluster", "list").stdout


def test_a_reader_that_went_away_is_no_failure_to_talk_about(examples_url):
    command = [sys.executable, "-m", "placement.client", "--url", examples_url, "tree", "edge/edge-01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_every_command_explains_itself():
    bare, listed = run(), run("--help").stdout
    assert (bare.returncode, "flavor translate" in bare.stdout) == (0, True)
    names = [name for name, _ in Catalog()]
    assert len(names) > 15
    assert all(f"  {name} " in listed for name in names)
    for name in ("serve", "candidates", "flavor translate"):
        explained = run(*name.split(), "--help")
        assert explained.returncode == 0, explained.stderr
        assert explained.stdout.startswith(f"usage: placement {name}")


def loaded(*arguments: str) -> set[str]:
    """The packages that a process has loaded when the command with these arguments ends."""
    program = (
        "import sys\n"
        "from placement.client.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert finished.returncode == 0, finished.stderr
    return {name.partition(".")[0] for name in finished.stderr.splitlines()[-1].split()}


OF_THE_SERVICE = {"sqlalchemy", "flask", "gunicorn", "numpy", "marshmallow", "oslo_config", "cmd2"}


@pytest.mark.parametrize("name", ["flavor translate --vcpus 1 --ram 1", "cluster list"])
def test_client_commands_do_not_load_the_service(name):
    """They start fast because of it."""
    assert OF_THE_SERVICE & loaded("--url", NOBODY_LISTENS, *name.split()) == set()


@pytest.mark.parametrize("name", ["--help", "node list --help", "help", "completion bash"])
def test_help_loads_nothing_that_calls_a_service_or_reads_a_file(name):
    unused = {"requests", "urllib3", "keystoneauth1", "kubernetes", "prometheus_client", "yaml"}
    packages = loaded(*name.split())
    assert "cliff" in packages
    assert (OF_THE_SERVICE | unused) & packages == set()


def test_help_looks_at_no_other_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The library would read the files of all, to name the package that a command is from."""
    monkeypatch.setattr(cliff.command, "packages_distributions", lambda: pytest.fail("reads all packages"))
    assert main(["help", "help"]) == 0
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "node list" in capsys.readouterr().out


def test_reservations_are_created_listed_shown_and_deleted(placement, rows, tmp_path):
    manifest, pod = tmp_path / "kept.json", tmp_path / "web.json"
    manifest.write_text(json.dumps(reservation("kept", "4", allocateOnce=False)))
    (created,) = rows("reservation", "create", "edge", str(manifest))
    assert (created["name"], created["phase"]) == ("kept", "Available")
    pod.write_text(json.dumps(named("kept-web", cpu="2", labels=WEB)))
    preview = rows("pod", "preview", "edge", str(pod))
    assert (preview[0]["node"], preview[0]["remarks"]) == (created["node"], ["takes from reservation kept"])
    rows("pod", "create", "edge", str(pod))
    (listed,) = rows("reservation", "list", "edge")
    assert listed["used_by"] == ["default/kept-web"]
    assert (listed["held"]["cpu"], listed["left"]["cpu"]) == ("4", "2")
    assert rows("reservation", "show", "edge", "kept")["left"] == listed["left"]
    drawn = placement("node", "show", "edge", created["node"]).stdout
    assert "kept by reservations, shared until their owners come" in drawn
    assert f"kept keeps CPUs {listed['left']['cpuset']}, cpu 2" in drawn
    placement("reservation", "delete", "edge", "kept")
    placement("pod", "delete", "edge", "kept-web")
    manifest.write_text(json.dumps(reservation("once", "4")))
    rows("reservation", "create", "edge", str(manifest))
    rows("pod", "create", "edge", str(pod))
    (over,) = rows("reservation", "list", "edge")
    assert (over["phase"], over["held"], over["used_by"]) == ("Succeeded", None, ["default/kept-web"])
    placement("reservation", "delete", "edge", "once")
    placement("pod", "delete", "edge", "kept-web")
    assert rows("reservation", "list", "edge") == []
