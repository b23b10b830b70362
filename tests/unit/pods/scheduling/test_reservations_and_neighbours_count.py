"""What reservations and neighbours change about where a pod fits and what it is given."""

from placement.engine.numa.allocator import HostReservations, Reservation
from placement.engine.numa.cpus import format_cpu_list, mask_of
from placement.engine.numa.host import HostTotals
from placement.pods.decide.rules import AMOUNTS, BETWEEN_PODS, HOST, PORTS, RULES, SELECTION
from placement.pods.decide.rules.amounts import HostAmounts
from placement.pods.decide.rules.numa import allocate_on_host
from placement.pods.decide.rules.rule import Fit, IncomingPod
from tests.kubernetes import RATIO
from tests.unit.pods.koordinator.pods import (
    DESIGN,
    KOORD,
    build_pod,
    container,
    held,
    host,
    judge,
    judged,
    lsr,
    request_of,
    totals,
)


def test_all_rules_but_one_are_asked_where_a_pod_may_use_a_reservation():
    """`ReservationLooks` asks all but AMOUNTS, which it counts, and BETWEEN_PODS, which adjustments ask."""
    asked = (*SELECTION, PORTS, *HOST, *BETWEEN_PODS)
    assert [rule for rule in RULES if rule not in asked] == [AMOUNTS]
    assert type(AMOUNTS) is HostAmounts


def test_reserved_cpus_are_returned_before_amplified_ones_are_counted():
    place = host(held("0-7"), annotations={RATIO: {"cpu": 2}})
    used = HostTotals({"cpu": 32000}, {"cpu": 16000})
    request = request_of(lsr(container(cpu="8", memory="1")))
    reserved = HostReservations((Reservation(mask_of(range(8))),), nominated=0)
    assert judge(IncomingPod(request), place, used).answer.reasons == ("Insufficient amplified cpu",)
    assert isinstance(judge(IncomingPod(request, reservations=reserved), place, used).answer, Fit)


def test_what_fits_out_of_a_reservation_is_allocated_out_of_it():
    place = host(held("0-7"), held("8-9"))
    request = request_of(lsr(container(cpu="8", memory="1")))
    reservations = HostReservations(
        (Reservation(mask_of((8, 9)), restricted=True), Reservation(mask_of(range(8))))
    )
    fit = judge(IncomingPod(request, reservations=reservations), place, totals()).answer
    assert fit.nominated == 1
    assert format_cpu_list(allocate_on_host(place, request, fit, reservations)[0].cpus) == "0-7"


def test_preferred_exclusivity_lets_idle_numa_nodes_and_hosts_score_higher():
    numa = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Preferred"}
    pod = build_pod(container(cpu="2", memory="1Gi"), qos="LS", numa=numa)
    neighbour = held("0-1")  # bound, but without amounts: the NUMA accounts do not know it
    for settings, numa_node in ((DESIGN, 1), (KOORD, 0)):
        place = host(neighbour, settings=settings)
        fit = judged(place, pod, settings).answer
        assert [*allocate_on_host(place, request_of(pod, settings), fit)[0].amounts] == [numa_node]
    both = held("0-1"), held("8-9")
    scores = {
        settings.profile: [
            judge(IncomingPod(request_of(pod, settings)), host(*holdings, settings=settings), totals()).score
            for holdings in ((), both)
        ]
        for settings in (DESIGN, KOORD)
    }
    idle, busy = scores["design"]
    assert idle > busy > 0
    assert len(set(scores["koord-scheduler"])) == 1
