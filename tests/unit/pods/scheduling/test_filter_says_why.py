"""The reasons of refusals, in the order in which they are looked for, and what fits."""

from dataclasses import replace

import pytest

from placement.engine.numa.cpuset import format_cpu_list, mask_of
from placement.engine.numa.host import HostTotals
from placement.engine.numa.reservations import HostReservations, Reservation
from placement.engine.scoring.order import DEFAULT_SCORING, Order
from placement.pods.host import remarks_on
from placement.pods.rules.numa import allocate_on_host, fit_host
from placement.pods.rules.rule import Fit, IncomingPod
from tests.unit.pods.koordinator.pods import (
    BIND,
    HINT,
    KOORD,
    NUMA,
    RATIO,
    build_pod,
    container,
    cpus_of,
    held,
    host,
    judge,
    judged,
    lsr,
    reasons,
    request_of,
    totals,
)

NO_CPUS = {"rows": (), "zones": []}
FULL, SPREAD = {"requiredCPUBindPolicy": "FullPCPUs"}, {"requiredCPUBindPolicy": "SpreadByPCPUs"}
SINGLE = {"numaTopologyPolicy": "SingleNUMANode"}


@pytest.mark.parametrize(
    ("place", "document", "reason", "status"),
    [
        (
            host(labels={NUMA: "Restricted", BIND: "SpreadByPCPUs"}),
            lsr(spec=FULL, numa=SINGLE),
            "node(s) NUMA Topology policy not match",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(settings=KOORD, labels={BIND: "FullPCPUsOnly"}, annotations={RATIO: {"cpu": 2}}),
            build_pod(container(cpu="17500m")),
            "the requested CPUs must be integer",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(labels={BIND: "SpreadByPCPUs"}, annotations={RATIO: {"cpu": 2}}, **NO_CPUS),
            lsr(container(cpu="9"), spec=FULL),
            "Insufficient amplified cpu",
            "Unschedulable",
        ),
        (
            host(labels={BIND: "SpreadByPCPUs"}, **NO_CPUS),
            lsr(spec=FULL),
            "node(s) invalid CPU Topology",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(labels={BIND: "SpreadByPCPUs"}),
            lsr(container(cpu="5"), spec=FULL),
            "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(),
            lsr(container(cpu="5"), spec=FULL),
            "node(s) requested cpus not multiple cpus per core",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(held("0,2,4,6,8,10,12")),
            lsr(container(cpu="4"), spec=FULL),
            "not enough cpus available to satisfy request",
            "Unschedulable",
        ),
        (
            host(labels={NUMA: "SingleNUMANode"}),
            lsr(container(cpu="10")),
            "Unaligned NUMA Hint cause cpu prefer [11] among [11]",
            "Unschedulable",
        ),
        (
            host(labels={NUMA: "Restricted"}, zones=[]),
            build_pod(),
            "node(s) missing NUMA resources",
            "UnschedulableAndUnresolvable",
        ),
        (
            host(held("0-7,10-15")),
            lsr(container(cpu="4")),
            "not enough cpus available to satisfy request",
            "Unschedulable",
        ),
        (
            host(held(numa0={"cpu": 8000}, numa1={"cpu": 8000}), labels={NUMA: "BestEffort"}),
            build_pod(),
            "Insufficient NUMA cpu",
            "Unschedulable",
        ),
        (
            host(unreadable=("default/broken",)),
            lsr(),
            "node(s) have pods with unreadable resource-status: default/broken",
            "UnschedulableAndUnresolvable",
        ),
    ],
)
def test_the_first_thing_that_is_wrong_is_the_reason(place, document, reason, status):
    answer = judged(place, document).answer
    assert answer.reasons == (reason,)
    assert answer.status == status


def test_unbound_pods_do_not_care_about_bound_ones():
    assert judged(host(held("0-15"), unreadable=("default/broken",)), build_pod()).fits
    assert judged(host(**NO_CPUS), build_pod()).fits


def test_required_fullpcpus_is_refused_by_smt_alignment_and_preferred_fullpcpus_is_not():
    assert reasons(host(), lsr(container(cpu="3"), spec=FULL)) == (
        "node(s) requested cpus not multiple cpus per core",
    )
    assert cpus_of(host(), lsr(container(cpu="3"))) == "0-2"
    assert reasons(host(labels={BIND: "FullPCPUsOnly"}), lsr(container(cpu="3"))) == (
        "node(s) requested cpus not multiple cpus per core",
    )


def test_a_merely_preferred_policy_gives_way_to_the_host():
    strict = host(labels={BIND: "FullPCPUsOnly"})
    document = lsr(spec={"preferredCPUBindPolicy": "SpreadByPCPUs"})
    assert cpus_of(strict, document) == "0-3"
    assert remarks_on(strict, request_of(document)) == (
        "the preferred bind policy SpreadByPCPUs gives way to the required FullPCPUs",
    )


def test_a_designated_allocation_decides_at_once():
    hint = {HINT: {"extensions": {"NodeNUMAResource": {}}}}
    place = host(held("8-11"), labels={NUMA: "SingleNUMANode"})
    for listed, fits in (("4-7", True), ("8-11", False), ("40-43", False)):
        verdict = judged(place, lsr(status={"cpuset": listed}, annotations=hint))
        assert verdict.fits is fits
    request = request_of(lsr(status={"cpuset": "4-7"}, annotations=hint))
    fit = judge(IncomingPod(request), place, totals()).answer
    assert format_cpu_list(allocate_on_host(place, request, fit).status.cpus) == "4-7"
    both = lsr(status={"cpuset": "4-7"}, annotations=hint, numa={"numaTopologyPolicy": "Restricted"})
    assert reasons(place, both) == ("node(s) NUMA Topology policy not match",)


def test_amplified_cpus_cost_the_ratio_when_bound():
    place = host(held("0-3"), annotations={RATIO: {"cpu": 2}})
    used = HostTotals({"cpu": 32000}, {"cpu": 4000})
    pod = IncomingPod(request_of(lsr(container(cpu="12", memory="1"))))
    assert judge(pod, place, used).fits  # 24 of 32 - 8
    crowded = HostTotals({"cpu": 32000}, {"cpu": 4001})
    assert judge(pod, place, crowded).answer.reasons == ("Insufficient amplified cpu",)
    assert judge(IncomingPod(request_of(build_pod(container(cpu="12")))), place, crowded).fits
    assert "each bound CPU costs 2" in remarks_on(place, request_of(lsr()))[0]


def test_reserved_cpus_are_returned_before_amplified_ones_are_counted():
    place = host(held("0-7"), annotations={RATIO: {"cpu": 2}})
    used = HostTotals({"cpu": 32000}, {"cpu": 16000})
    owner = IncomingPod(request_of(lsr(container(cpu="8", memory="1"))))
    reserved = HostReservations((Reservation(mask_of(range(8))),), nominated=0)
    assert judge(owner, place, used).answer.reasons == ("Insufficient amplified cpu",)
    assert judge(replace(owner, reservations=reserved, answers={}), place, used).fits


def test_what_fits_out_of_a_reservation_is_allocated_out_of_it():
    place = host(held("0-7"), held("8-9"))
    request = request_of(lsr(container(cpu="8", memory="1")))
    reservations = HostReservations(
        (Reservation(mask_of((8, 9)), restricted=True), Reservation(mask_of(range(8))))
    )
    fit = judge(IncomingPod(request, reservations=reservations), place, totals()).answer
    assert fit.nominated == 1
    assert format_cpu_list(allocate_on_host(place, request, fit, reservations).status.cpus) == "0-7"


def test_equal_hosts_get_equal_answers_and_are_looked_at_once(monkeypatch):
    looked_at = []

    def fit_once(place, *rest):
        looked_at.append(place)
        return fit_host(place, *rest)

    monkeypatch.setattr("placement.pods.rules.numa.fit_host", fit_once)
    pod = IncomingPod(request_of(lsr()), scoring=Order((replace(DEFAULT_SCORING, type="MostAllocated"),)))
    verdicts = [
        judge(pod, host(held("0-3")), HostTotals({"cpu": 16000}, {"cpu": 1000 * used})) for used in (4, 8)
    ]
    assert len(looked_at) == 1
    assert [verdict.answer for verdict in verdicts] == [Fit(), Fit()]
    assert [verdict.score for verdict in verdicts] == [50, 75]
    judge(pod, host(held("0-1")), totals())
    assert len(looked_at) == 2


def test_remarks_explain_what_has_no_effect():
    one_thread = host(rows=tuple((cpu, cpu, 0, 0) for cpu in range(4)))
    spreading = lsr(
        spec={"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}
    )
    assert remarks_on(one_thread, request_of(spreading)) == (
        "cores have one thread: SpreadByPCPUs chooses as FullPCPUs does",
        "cores have one thread: PCPULevel has no neighbours to avoid",
    )
    everybody = host(settings=KOORD, labels={BIND: "FullPCPUsOnly"})
    assert remarks_on(everybody, request_of(build_pod())) == (
        "the host's bind policy FullPCPUsOnly gives CPUs of their own to all pods that request CPUs",
    )
    single = host(rows=tuple((cpu, cpu, 0, 0) for cpu in range(4)), labels={NUMA: "SingleNUMANode"})
    assert remarks_on(single, request_of(build_pod())) == (
        "the host has one NUMA node: aligned pods are not accounted for there",
    )
    assert remarks_on(host(labels={NUMA: "Restricted"}), request_of(build_pod(numa=SINGLE))) == ()
