"""Reservations as they are written, and whose they are."""

import datetime

import pytest

from placement.common.manifest import Field, ManifestReport
from placement.pods.koordinator.pod import read_reservation_affinity
from placement.pods.koordinator.reservation import import_reservation
from placement.pods.state.model import AllocatePolicy, stored_terms
from tests.reservations import ORDER, WEB, reservation

NOW = datetime.datetime(2026, 5, 1, 12)
REFERENCE = {"kind": "StatefulSet", "name": "web", "apiVersion": "apps/v1", "uid": "u", "controller": True}
POD = {
    "apiVersion": "v1",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "p",
        "labels": {"app": "web", "tier": "front"},
        "ownerReferences": [{"kind": "Other"}, REFERENCE],
    },
}


def terms(**spec):
    return import_reservation(reservation(**spec), NOW).terms


def selecting(key, operator, *values):
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return {"labelSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("owner", "matches"),
    [
        ({"object": {"name": "web-0", "namespace": "shop", "uid": "p", "apiVersion": "v1"}}, True),
        ({"object": {"kind": "Pod", "name": "web-1"}}, False),
        ({"object": {"name": "web-0", "namespace": "default"}}, False),
        ({"controller": {"kind": "StatefulSet", "name": "web", "namespace": "shop"}}, True),
        ({"controller": {"kind": "StatefulSet", "controller": False}}, False),
        ({"controller": {"kind": "StatefulSet", "namespace": "default"}}, False),
        ({"labelSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"labelSelector": {}}, True),
        (selecting("tier", "NotIn", "back"), True),
        (selecting("app", "Exists"), True),
        (selecting("tier", "DoesNotExist"), False),
        ({"object": {"name": "web-0"}, "labelSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"object": {"name": "web-0"}, "labelSelector": {"matchLabels": {"app": "db"}}}, False),
    ],
)
def test_an_owner_is_whom_everything_fits(owner, matches):
    assert terms(owners=[owner]).owned_by(POD) is matches
    assert terms(owners=[{"object": {"name": "nobody"}}, owner]).owned_by(POD) is matches
    assert not terms(owners=[owner], unschedulable=True).owned_by(POD)


def test_terms_are_stored_and_read_again():
    controller = {"kind": "Job", "namespace": "shop", "controller": True}
    labels = {**selecting("b", "Exists")["labelSelector"], "matchLabels": WEB}
    found = terms(
        labels={ORDER: "7", "pool": "blue"},
        owners=[{"object": {"name": "a"}}, {"controller": controller}, {"labelSelector": labels}],
        allocateOnce=False,
        allocatePolicy="Restricted",
        unschedulable=True,
    )
    assert stored_terms(found.document()) == found
    assert (found.order, found.restricted, found.allocate_once) == (7, True, False)


@pytest.mark.parametrize(
    ("spec", "after"),
    [
        ({}, datetime.timedelta(hours=24)),
        ({"ttl": "0"}, None),
        ({"ttl": "0s"}, None),
        ({"ttl": "1h30m"}, datetime.timedelta(minutes=90)),
        ({"ttl": "1.5s"}, datetime.timedelta(seconds=1.5)),
        ({"expires": "2026-05-01T14:00:00+01:00"}, datetime.timedelta(hours=1)),
    ],
)
def test_when_it_expires(spec, after):
    found = terms(**spec)
    assert found.expires_at == (None if after is None else NOW + after)
    assert not found.is_over(NOW)
    assert found.is_over(NOW + datetime.timedelta(days=2)) == (after is not None)


def test_its_time_begins_with_its_creation():
    manifest = reservation(ttl="1h")
    earlier = NOW - datetime.timedelta(minutes=30)
    found = import_reservation(manifest, NOW).seen_first(earlier).terms
    assert found.expires_at == earlier + datetime.timedelta(hours=1)
    manifest["metadata"]["creationTimestamp"] = "2026-05-01T10:00:00Z"
    found = import_reservation(manifest, NOW).seen_first(earlier).terms
    assert found.since == datetime.datetime(2026, 5, 1, 10)


def test_policies():
    for text in ("", "Default", "Aligned", "Restricted"):
        wanted = AllocatePolicy("" if text == "Default" else text)
        assert terms(allocatePolicy=text).policy is wanted


@pytest.mark.parametrize(
    ("text", "name", "labels", "accepts"),
    [
        ("{}", "a", {}, True),
        ('{"name": "a", "reservationSelector": {"x": "y"}}', "a", {}, True),
        ('{"name": "b"}', "a", {}, False),
        ('{"reservationSelector": {"x": "y"}}', "a", {"x": "y"}, True),
        ('{"reservationSelector": {"x": "y"}}', "a", {}, False),
        ('{"requiredDuringSchedulingIgnoredDuringExecution": {}}', "a", {}, False),
        (None, "a", {}, None),
    ],
)
def test_which_reservations_a_pod_accepts(text, name, labels, accepts):
    affinity = read_reservation_affinity(Field("affinity", text, ManifestReport()))
    assert (affinity and affinity.accepts(name, labels)) is accepts
