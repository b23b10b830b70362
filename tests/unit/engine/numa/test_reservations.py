"""Pods that may use what is reserved for them; worked cases show most of it."""

import pytest

from placement.engine.numa.allocator import HostReservations, Reservation, ReservedPlacing, what_is_left
from placement.engine.numa.host import NumaAmounts, PodRefused
from tests.unit.engine.numa.samples import cpus, holding, host, pod, shown


def reserved(listed="", *, restricted=False, total=None, **remaining):
    left = NumaAmounts({int(name.removeprefix("numa")): row for name, row in remaining.items()})
    return Reservation(cpus(listed), left, NumaAmounts(total) if total else left, restricted)


def placing(state, request, *matched, **options):
    return ReservedPlacing(state, request, HostReservations(matched, **options))


def test_unallocatable_cpus_of_a_restricted_reservation_are_not_made_up_for_elsewhere():
    state = host(2, 1, 4, 2, holdings=[holding("4-10")], unallocatable=cpus("4"))
    place = placing(state, pod("FullPCPUs", cpu=7000), reserved("4-10", restricted=True))
    with pytest.raises(PodRefused, match="not enough cpus available"):
        place.nominate(0, None)


def test_resources_a_restricted_reservation_holds_are_limited_and_others_are_not():
    state = host(2, 1, 4, 2)
    some = reserved(restricted=True, numa0={"cpu": 3000})
    assert placing(state, pod(cpu=3000, memory=5000), some).nominate(0, (0,)).amounts[0]["memory"] == 5000
    with pytest.raises(PodRefused, match="Insufficient NUMA cpu"):
        placing(state, pod(cpu=4000), some, required=True).nominate(0, (0,))


def test_only_an_optional_reservation_that_cannot_be_used_leads_to_free_capacity():
    elsewhere = reserved(restricted=True, numa1={"cpu": 8000})
    place = placing(host(2, 1, 4, 2), pod(cpu=4000), elsewhere)
    assert place.explore((0,)).reservation is None
    assert dict(place.explore((0,)).allocation.amounts) == {0: {"cpu": 4000}}
    assert place.fits((0,))
    place = placing(host(2, 1, 4, 2), pod(cpu=4000), elsewhere, elsewhere, required=True)
    assert not place.fits((0,))
    assert place.fits((1,))


def test_ignoring_reservations_takes_from_all_of_them():
    state = host(2, 1, 4, 2, holdings=[holding("0-5"), holding("10-15")])
    place = placing(state, pod("FullPCPUs", cpu=14000), reserved("0-5"), reserved("10-15"), ignored=True)
    assert place.explore(None) == (place.allocate(None), None)
    assert place.allocate(None).cpus & cpus("0-5,10-15") == cpus("0-5,10-15")


def test_what_is_left_is_what_owners_have_not_taken():
    held = holding("0-7", numa0={"cpu": 8000, "memory": 10})
    owner = holding("0-1", numa0={"cpu": 2000, "memory": 10})
    left = what_is_left(held, [owner])
    assert left.cpus == frozenset(range(2, 8))
    assert dict(left.amounts) == {0: {"cpu": 6000}}
    assert dict(what_is_left(held, [held]).amounts) == {}


def test_whole_cores_are_found_within_a_restricted_reservation():
    own = reserved("1,4-7", restricted=True)
    strict = pod("FullPCPUs", strict=True, cpu=4000)
    place = placing(host(2, 1, 4, 2, holdings=[holding("1,4-7")]), strict, own)
    assert shown(place.nominate(0, None).cpus) == "4-7"
