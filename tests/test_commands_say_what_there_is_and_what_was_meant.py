"""Commands list what there is and has room, say what was probably meant, and what would help."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from placement.client.arguments import GRAMMAR
from placement.client.catalog import COMMANDS
from placement.client.cli import Placement
from placement.client.client import Client
from placement.client.parsers import parsers
from placement.server.demonstration import examples
from tests import client as http_client
from tests.commands import refusal, run
from tests.conftest import application_on
from tests.server import hosted
from tests.service import Service
from tests.test_commands_fit_people_and_programs import on_terminal

POD = examples() / "pod.yaml"
EVERY_SECOND = "--watch=1"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def placement(examples_url: str) -> Run:
    """The command, pointed at the service."""
    return lambda *arguments, **options: run("--url", examples_url, *arguments, **options)


@pytest.fixture
def rows(placement: Run) -> Callable[..., Any]:
    """What a command prints as JSON."""
    return lambda *arguments: json.loads(placement(*arguments, "-o", "json").stdout)


# What there is.


def test_nodes_are_listed_with_their_state_and_what_they_have_free(rows):
    (node,) = [each for each in rows("node", "list", "edge") if each["name"] == "edge-01"]
    assert node["state"] == ["open"]
    assert (node["cpus_free"], node["memory_free_mib"]) == (40, 224002 - 40960)
    assert rows("node", "list", "batch")[2]["state"] == ["cordoned"]
    (by_headings,) = rows("node", "list", "edge", "--limit", "1", "-c", "Memory free", "-c", "Age")
    assert list(by_headings) == ["memory_free_mib", "created_at"]


def test_hosts_of_openstack_are_listed_with_what_they_have_free(rows):
    (host,) = [each for each in rows("host", "list") if each["name"] == "cloud/compute-04"]
    assert (host["cluster"], host["cpu_use"], host["cpus_free"], host["pcpu_free"]) == ("cloud", 0, 64, 32)
    of_cloud = rows("host", "list", "--cluster", "cloud")
    assert {each["cluster"] for each in of_cloud} == {"cloud"}
    assert rows("host", "list", "--aggregate", "cloud") == of_cloud
    assert not [each for each in rows("host", "list") if "ceph" in each["name"]]


def test_the_fullest_hosts_of_all_come_first(rows):
    fullest = ["--sort-column", "CPU use", "--sort-descending"]
    uses = [each["cpu_use"] for each in rows("host", "list", *fullest)]
    assert uses == sorted(uses, reverse=True)
    assert [each["cpu_use"] for each in rows("host", "list", *fullest, "--limit", "3")] == uses[:3]


def test_aggregates_go_by_their_names(rows):
    wanted = ["resources=VCPU:1", "member_of=!in:edge,batch", "limit=9"]
    assert {row["root"].split("/")[0] for row in rows("candidates", *wanted)} == {"cloud"}
    apart = ["--dry-run", "--count", "2", "--spread", "edge", "--spread", "batch", "resources=CUSTOM_PODS:1"]
    assert {row["provider"].split("/")[0] for row in rows("claim", *apart)} == {"edge", "batch"}
    (room, *_) = rows("capacity", "resources=CUSTOM_PODS:1", "member_of=cloud")
    assert room["room"] == 0


def test_a_name_of_several_aggregates_is_refused(placement, examples_url):
    client, twins = Client(examples_url, "admin"), [str(uuid.uuid4()) for _ in range(2)]
    (host,) = client.get("/resource_providers", [("name", "cloud/compute-01")])["resource_providers"]
    path = f"/resource_providers/{host['uuid']}/aggregates"
    before = client.get(path)
    after = client.put(path, {**before, "aggregates": [*before["aggregates"], *twins]})
    for each in twins:
        placement("aggregate", "set", each, "--name", "twin")
    refused = refusal("--url", examples_url, "candidates", "resources=VCPU:1", "member_of=twin")
    client.put(path, {**after, "aggregates": before["aggregates"]})
    assert refused.startswith("member_of: 2 aggregates have the name twin: ")
    assert all(each in refused for each in twins)


def test_changes_are_listed_since_some_hours_ago(rows, placement):
    assert rows("audit", "--since", "9h", "--limit", "1")
    assert rows("audit", "--until", "9h", "--limit", "1") == []
    assert rows("audit", "--since", "yesterday 00:00", "--limit", "1")
    assert "since: '999999d' is not a time such as " in placement("audit", "--since", "999999d").stderr


def test_nodes_are_sorted_before_some_are_left_out(rows):
    free = [each["memory_free_mib"] for each in rows("node", "list", "batch")]
    fullest = rows("node", "list", "batch", "--sort-column", "memory_free_mib", "--limit", "2")
    assert [each["memory_free_mib"] for each in fullest] == sorted(free)[:2]
    # Cells without an order stay as they were.
    assert rows("allocation", "list", "--sort-column", "amounts", "--limit", "2")


def test_clusters_are_listed_with_their_hosts_and_use(rows):
    (cloud,) = [each for each in rows("cluster", "list") if each["name"] == "cloud"]
    assert (cloud["hosts"], cloud["nodes"]) == (4, 0)
    assert 0 < cloud["cpu_use"] < cloud["memory_use"] < 100


def test_the_status_says_where_and_who(placement, rows, examples_url):
    status = rows("status")
    assert (status["url"], status["user_id"], status["roles"]) == (examples_url, "admin", ["admin"])
    # Nothing of this process looks at its health, which is no good health.
    assert status["schema_version"] == "failed: not looked at yet"
    assert placement("status").returncode == 1


def test_quantities_of_kubernetes_are_shown_in_gibibytes(placement):
    listed = placement("reservation", "list", "batch")
    assert "memory=8.0 GiB" in listed.stdout
    (first, _) = json.loads(placement("reservation", "list", "batch", "-f", "json").stdout)
    assert first["left"]["memory"] == str(8 * 2**30)


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("reservation list edge", "No reservations in cluster edge.\n"),
        (
            "node list cloud",
            "No nodes in cluster cloud; placement host list lists other hosts.\n",
        ),
        ("pod list cloud", "No pods in cluster cloud.\n"),
        ("pod list batch --qos system", "No such pods in cluster batch.\n"),
        ("allocation list --project none", "No such allocations.\n"),
    ],
)
def test_an_empty_list_says_so_aside(placement, command: str, note: str):
    listed = placement(*command.split(), "-f", "json")
    assert (listed.returncode, json.loads(listed.stdout), listed.stderr) == (0, [], note)


def test_a_list_is_repeated_until_it_is_interrupted(placement, monkeypatch):
    seen: list[float] = []

    def interrupted(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 2:
            raise KeyboardInterrupt

    # Threads of other tests sleep, too, so the function itself stays.
    monkeypatch.setattr("placement.client.command.time", SimpleNamespace(sleep=interrupted))
    watched = placement("node", "list", "edge", EVERY_SECOND)
    assert watched.returncode == 130
    assert (watched.stdout.count("Memory free"), seen) == (2, [1, 1])


def test_no_name_commands_the_terminal(placement, examples_url):
    name = "\033]0;title\007\033[2Jhost\u009b2J"
    made = Service(examples_url).must("POST", "/resource_providers", {"name": name})
    for command in ("host list --wide", f"tree {made['uuid']}"):
        shown = placement(*command.split()).stdout
        assert r"\x1b]0;title\x07\x1b[2Jhost\x9b2J" in shown
        assert not set(shown) & set("\033\007\u009b")
    Service(examples_url).must("DELETE", f"/resource_providers/{made['uuid']}")


# What was meant.


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("node list egde", "No cluster egde found; did you mean edge?"),
        ("node show edge edge-011", "No node edge-011 found in cluster edge; did you mean edge-01"),
        ("pod list edge --node edge-011", "No node edge-011 found in cluster edge; did you mean edge-01"),
        ("reservation list edge --node edge-0", "No node edge-0 found in cluster edge; did you mean"),
        ("pod show batch release-1 --namespace ci", "; did you mean ci/release-0"),
        (
            "pod show batch release-0",
            "No pod default/release-0 found in cluster batch; did you mean ci/release-0?",
        ),
        ("candidates resources=PCP:1", "No such resource class PCP; did you mean PCPU?"),
        ("candidates resources=vcpu:4", "No such resource class vcpu; did you mean VCPU"),
        ("candidates resources=PCPU:1 required=hw_cpu_x86_avx22", "did you mean HW_CPU_X86_AVX2"),
        ("explain resouces=PCPU:1", "resouces: is not a parameter of this request; did you mean resources?"),
        ("candidates resources=PCPU:1 ordr_by=pack", "did you mean order_by?"),
        (
            "candidates resources=PCPU:1 nothing=1",
            "; parameters are closed, cluster, explain, group_policy",
        ),
        ("claim resources=PCPU:1 clutser=edge", "did you mean cluster?"),
        ("flavor explain --vcpus 1 --ram 1 --cluster egde", "did you mean edge?"),
        ("candidates resources=PCPU:1 member_of=egde", "No aggregate egde found; did you mean edge?"),
        ("claim resources=PCPU:1 --count 2 --spread egde", "No aggregate egde found; did you mean edge?"),
        ("tree edge/edge-09", "did you mean edge/edge-08"),
        ("plan make empty edge/edge-09", "did you mean edge/edge-08"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(examples_url, command: str, meant: str):
    assert meant in refusal("--url", examples_url, *command.split())


@pytest.mark.parametrize(
    "command",
    ["flavor candidates --limit 1", "flavor explain", "claim --dry-run", "capacity", "plan make fit"],
)
def test_extra_specs_that_are_ignored_are_named(placement, command: str):
    specs = ("--property", "hw:cpu_polcy=dedicated", "--property", "trait:CUSTOM_GOLD=require")
    done = placement(*command.split(), "--vcpus", "1", "--ram", "64", "--cluster", "cloud", *specs)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        0,
        "Ignored: hw:cpu_polcy: there is no such extra spec; did you mean hw:cpu_policy?; "
        "trait:CUSTOM_GOLD: 'require' is neither required nor forbidden",
    )


@pytest.mark.parametrize("option", [(), ("--strict",)])
def test_extra_specs_that_are_not_decided_are_named(placement, option: tuple[str, ...]):
    flavor = ("--vcpus", "1", "--ram", "64", "--property", "pci_passthrough:alias=a100:2")
    done = placement("flavor", "candidates", *flavor, "--cluster", "cloud", "--limit", "1", *option)
    said = "Ignored: pci_passthrough:alias: not decided here: whether a host has these PCI devices free"
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, said)


@pytest.mark.parametrize(
    "command",
    [
        "allocation list --host compute-01",
        "plan make fit resources=VCPU:1 --keep compute-01",
        "orphans --xyz",
    ],
)
def test_options_that_are_not_near_are_not_suggested(placement, command: str):
    refused = placement(*command.split())
    assert (refused.returncode, "did you mean" in refused.stderr) == (2, False), refused.stderr
    assert "unrecognized arguments: --" in refused.stderr


@pytest.fixture(scope="module")
def hosts_url() -> Iterator[str]:
    """Where hosts are served that have domains."""
    with application_on("sqlite") as application:
        api = http_client.Client(application.test_client())
        for name in ("gpu-007.prod.example.org", "gpu-452.prod.example.org", "vm-9.lab.example.org"):
            api.provider(name, VCPU=8)
        with hosted(application) as url:
            yield url


@pytest.mark.parametrize(
    "command",
    [
        "tree {}",
        "host show {}",
        "allocation list --provider {}",
        "audit --target {}",
        "candidates resources=VCPU:1 in_tree={}",
        "explain resources=VCPU:1 in_tree={}",
        "claim resources=VCPU:1 in_tree={}",
        "capacity resources=VCPU:1 --without {}",
        "capacity resources=VCPU:1 --more {}=2",
        "plan make empty {}",
    ],
)
@pytest.mark.parametrize("name", ["gpu-07", "GPU-007", "gpu-007.prod.exmaple.org"])
def test_hosts_that_were_meant_are_suggested_with_their_domain(hosts_url: str, command: str, name: str):
    assert "did you mean gpu-007.prod.example.org" in refusal(
        "--url", hosts_url, *command.format(name).split()
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("candidates resources=PCPU:1 limit=x", "limit: must be a whole number from 1 on, not 'x'"),
        ("plan make empty --cluster edge", "empty: name the hosts"),
        ("candidates resources=PCPU:1 cluster=edge --cluster batch", "cluster: give either batch or edge"),
        ("explain resources=PCPU:1 limit=2 --limit 3", "limit: give either 3 or 2"),
        ("allocation show edge/packet-core", "must be a UUID, not 'edge/packet-core'"),
        ("cluster list -c colour", "-c colour: there is no such column; columns are name, hosts, "),
        ("host list -c name -c cpu", "-c cpu: there is no such column; did you mean cpu_use or cpus_free"),
        ("host list --sort-column cpu", "--sort-column cpu: there is no such column; did you mean cpu_use"),
        ("cluster show edge -c nmae", "-c nmae: there is no such column; did you mean name?"),
        ("host list --clutser edge", "unrecognized arguments: --clutser edge; did you mean --cluster?"),
        ("candidates resources=VCPU:1 --limt=3", "did you mean --limit?"),
        ("host list edge", "unrecognized arguments: edge; did you mean --cluster edge?"),
        ("claim --count 10001", "placement: --count: at most 10000, not 10001"),
        ("candidates VCPU:4", "VCPU:4: is not KEY=VALUE, did you mean resources=VCPU:4?"),
        ("explain vcpu:4,memory_mb:512", "did you mean resources=VCPU:4,MEMORY_MB:512?"),
        ("candidates --vcpus 4", "`placement flavor candidates` asks for flavors"),
        ("flavor explain --vcpus 1 --ram 8Q", "must be a size such as 8192 (MiB) or 8G, not '8Q'"),
        ("flavor explain --vcpus 1 --ram 1K", "must be a whole number of MiB, not '1K'"),
        ("node show edge", "node: give CLUSTER NODE or CLUSTER/NODE, not edge"),
        ("node show edge/a/b", "node: give CLUSTER NODE or CLUSTER/NODE, not edge/a/b"),
        ("pod show edge shop/cart-0 -n bank", "--namespace: bank is not that of shop/cart-0"),
        ("plan make empty cloud/compute-01 --aggregate edge", "--aggregate: is for fit and defragment"),
    ],
)
def test_arguments_that_make_no_sense_end_with_2(placement, command: str, reason: str):
    refused = placement(*command.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert reason in refused.stderr


_TRANSLATE = "flavor translate --vcpus 2"


@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("node show edge/edge-01", "node show edge edge-01"),
        ("node show edge edge/edge-01", "node show edge edge-01"),
        ("pod show edge shop/cart-0", "pod show edge cart-0 --namespace shop"),
        ("pod show edge/shop/cart-0", "pod show edge cart-0 -n shop"),
        ("host show edge/edge-01", "tree edge/edge-01"),
        (f"{_TRANSLATE} --ram 8G --disk 2TiB", f"{_TRANSLATE} --ram 8192 --disk 2048"),
        (f"{_TRANSLATE} --ram 2t --swap 1gib", f"{_TRANSLATE} --ram 2097152 --swap 1024"),
    ],
)
def test_names_and_sizes_are_taken_as_tables_print_them(placement, command: str, same: str):
    first, second = (placement(*each.split(), "-f", "json") for each in (command, same))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout


def test_all_parts_of_a_host_are_meant_by_its_name(rows):
    (core, *_) = (row for row in rows("allocation", "list") if "/core-" in row["provider"])
    host = "/".join(core["provider"].split("/")[:2])
    held = rows("allocation", "list", "--provider", host)
    assert core in held
    assert {"/".join(row["provider"].split("/")[:2]) for row in held} == {host}
    assert {row["provider"] for row in rows("allocation", "list", "--provider", core["provider"])} == {
        core["provider"]
    }


@pytest.mark.parametrize(
    "command",
    [
        "candidates resources=PCPU:1 limit=3",
        "explain resources=PCPU:1",
        "claim resources=PCPU:1 --dry-run",
        "capacity resources=PCPU:1",
        "flavor candidates --vcpus 1 --ram 64 --limit 2 --property hw:cpu_policy=dedicated",
        "plan make fit resources=PCPU:1",
    ],
)
def test_a_cluster_is_a_parameter_or_an_option(placement, command: str):
    ways = (["cluster=edge"], ["--cluster", "edge"])
    first, second = (placement(*shlex.split(command), *way, "-f", "json") for way in ways)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    # Each claim is for a consumer of its own.
    found = [[{**row, "consumer": None} for row in json.loads(each.stdout)] for each in (first, second)]
    assert found[0] == found[1]


# What would help.


def test_an_explanation_says_first_what_splitting_would_give(placement):
    told = placement("explain", "resources=PCPU:40", "--cluster", "edge").stdout
    split = re.search(r"free; (resources\S+) (split\S+) takes it from several providers of a host\.", told)
    mend = told.index(split[0])
    assert placement("explain", *split.groups(), "--cluster", "edge").stdout.startswith("Fits on ")
    assert "No single provider has more than 2 PCPU free;" in told
    assert "the most on one host is 60 (edge/edge-0" in told
    assert mend < told.index("edge/edge-01/core-0-[7-11] each lacks 38 PCPU: it has 2 free")
    told = placement("explain", "resources=PCPU:400", "cluster=edge").stdout
    assert ", less than 400." in told
    assert "several providers of a host" not in told
    told = placement("explain", "resources_a=PCPU:400", "split_a=PCPU").stdout
    assert told.startswith("Fits nowhere")
    assert "takes it from" not in told
    assert "; split_a=PCPU takes it from several" in placement("explain", "resources_a=PCPU:9").stdout


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if entry.section == "Ask"])
def test_the_example_of_a_question_is_understood(placement, name: str):
    asked = placement(*name.split(), *shlex.split(COMMANDS[name].example))
    assert "placement:" not in asked.stderr


def test_nodes_where_a_pod_misses_something_are_its_second_choice(rows):
    nodes = rows("pod", "preview", "edge", str(POD))
    assert [node["choice"] for node in nodes] == [1] * 7 + [2]
    assert nodes[-1]["score"] > nodes[0]["score"]
    assert "gives way" in nodes[-1]["remarks"][0]


@pytest.mark.parametrize("named", [[], ["--consumer", str(uuid.uuid4())]])
def test_a_claim_says_how_to_release_it(placement, named: list[str]):
    claimed = placement("claim", *named, "resources=CUSTOM_PODS:1", "--cluster", "edge", "-f", "json")
    consumer = json.loads(claimed.stdout)[0]["consumer"]
    assert claimed.stderr == f"To release it: placement allocation delete {consumer}\n"
    assert placement("allocation", "delete", consumer).returncode == 0


# What people read.


def test_changes_on_80_columns_say_what_was_changed(examples_url):
    shown = on_terminal(examples_url, 80, "audit", "--type", "resource_provider", "--limit", "3")
    heading = shown.splitlines()[1]
    assert all(f" {name} " in heading for name in ("Time", "Action", "Type", "Target"))
    assert "+00:00" not in shown


def test_annotations_of_a_pod_are_lines(placement, examples_url, tmp_path):
    pod = yaml.safe_load(POD.read_text())
    pod["metadata"]["name"] = "annotated"
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    created = placement("pod", "create", "edge", str(file), "-o", "wide").stdout
    shown = placement("pod", "show", "edge", "annotated").stdout
    assert placement("pod", "delete", "edge", "annotated").returncode == 0
    assert '  "cpuset": ' in created
    assert '  "cpuset": ' in shown
    assert max(map(len, shown.splitlines())) < 100
    assert re.search(r"^\| Confirmed by Kubernetes +\| False ", shown, re.MULTILINE)
    assert not re.search(r"^\| (Phase|Warnings|Remarks|Unreadable) ", shown, re.MULTILINE)


def test_commands_are_listed_by_section(placement):
    listed = placement("--help").stdout
    places = [
        listed.index(f"\n{section}:") for section in ("Ask", "Change", "Kubernetes", "OpenStack", "Operate")
    ]
    assert places == sorted(places)
    assert all(f"\n  {name} " in listed for name in COMMANDS)


def test_help_has_an_example_and_one_line_about_output(placement):
    shown = placement("help", "node", "list").stdout
    assert "example: placement node list edge\n" in shown
    assert "output: -o FORMAT (csv, json, table, value, yaml, wide), -c COLUMN, --watch" in shown
    assert "--sort-column" not in shown


@pytest.mark.parametrize("command", ["candidates", "explain", "claim"])
def test_help_and_documents_have_the_parameters_of_queries(placement, command: str):
    shown, page = placement(command, "--help").stdout, Path("docs/candidates.md").read_text()
    for example, meaning in GRAMMAR:
        # A claim takes one candidate.
        assert (f"  {example:34}{meaning}\n" in shown) == (command != "claim" or example != "limit=5")
        assert f"| `{example}` | {meaning} |\n" in page


def test_every_example_is_one_that_its_command_takes():
    for command in parsers(Placement()):
        words = command.example.split(" ", 1 + len(command.name.split()))
        arguments = shlex.split(words[-1]) if len(words) > 1 + len(command.name.split()) else []
        command.parser.parse_args(arguments)


def test_a_service_that_hangs_up_is_no_service_that_is_away(tmp_path):
    hang_up = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
    )
    hang_up += "while True: s.accept()[0].close()"
    with subprocess.Popen([sys.executable, "-c", hang_up], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        refused = refusal("--url", url, "cluster", "list")
        server.kill()
    assert refused == f"{url} closed the connection before it answered"


def test_a_question_is_asked_again_if_a_kept_connection_was_closed():
    def answer_once_a_connection(server: socket.socket) -> None:
        for _ in range(2):
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_once_a_connection, args=[server], daemon=True).start()
        client = Client(f"http://127.0.0.1:{server.getsockname()[1]}", "t")
        assert [client.get("/"), client.get("/")] == [{}, {}]
