"""The worked cases about nodes, under both profiles."""

import json
from pathlib import Path

import pytest

from placement.common.manifest import Field, ManifestReport, Profile
from placement.engine.numa.cpuset import format_cpu_list, parse_cpu_list
from placement.engine.numa.demand import NumaPolicy
from placement.pods.koordinator.policies import (
    KubeletPolicy,
    host_bind_policy,
    pod_bind_policy,
    translate_topology_policy,
)
from placement.pods.koordinator.tree import read_reservation
from tests.oracles.agent_reservation import reserved_count
from tests.oracles.topology_policies import reported_topology_policy

CASES = json.loads((Path(__file__).parents[4] / "data" / "koordinator-node-cases.json").read_text())["cases"]


def cases_of(kind):
    chosen = [case for case in CASES if case["kind"] == kind]
    assert chosen
    return pytest.mark.parametrize(
        ("given", "expected"), [pytest.param(case["input"], case["expect"], id=case["id"]) for case in chosen]
    )


@cases_of("cpulist")
def test_cpu_lists(given, expected):
    if given["op"] == "parse":
        assert parse_cpu_list(given["text"]) == frozenset(expected["cpus"])
    else:
        assert format_cpu_list(given["cpus"]) == expected["text"]


@cases_of("node-reservation")
def test_node_reservations(given, expected):
    reservation = read_reservation(
        Field("reservation", given["annotation"], ManifestReport()).softly().json()
    )
    assert reservation.reserved_cpus == expected["reserved_cpus"]
    assert reserved_count(reservation) == expected["reserved_count"]


@cases_of("bind-policy")
def test_effective_bind_policies(given, expected):
    kubelet = KubeletPolicy(given["kubelet"].get("policy", ""), given["kubelet"].get("options", {}))
    host = host_bind_policy(given["node_policy"], kubelet)
    bind = pod_bind_policy(host, given["required"], given["preferred"])
    assert bind == (expected["bind"], expected["required"])


@cases_of("kubelet-topology-policy")
def test_policies_that_the_node_agent_reports(given, expected):
    assert reported_topology_policy(given["policy"], given["scope"]) == expected["topology_policy"]


def test_every_policy_that_the_node_agent_reports_is_understood_under_design():
    for policy in ("best-effort", "restricted", "single-numa-node"):
        for scope in ("pod", "container"):
            reported = reported_topology_policy(policy, scope)
            assert translate_topology_policy(reported, Profile.DESIGN) in set(NumaPolicy) - {NumaPolicy.NONE}


@pytest.mark.parametrize("profile", Profile)
@cases_of("ingest")
def test_ingestion(given, expected, profile, a_node, an_nrt, imported, providers):
    reported = given["nrt"]
    nrt = an_nrt(rows=(), zones=reported["zones"], annotations=reported["annotations"])
    nrt["metadata"]["name"] = reported["name"]
    result = imported(a_node(name=reported["name"]), nrt, profile)
    topology = result.topology
    assert format_cpu_list(result.unallocatable) == expected["reserved_cpus"]
    counts = {
        "num_cpus": len(topology.rows),
        "num_cores": len(topology.cores),
        "num_numa_nodes": len(topology.numa_nodes),
        "num_sockets": len(topology.sockets),
    }
    assert counts == {key: expected[key] for key in counts}
    for numa, amounts in expected["numa_resources"].items():
        cpu = providers(result)[f"numa-{numa}"].inventories["CUSTOM_CPU_MILLI"]
        assert cpu.capacity == 1000 * int(amounts["cpu"])
