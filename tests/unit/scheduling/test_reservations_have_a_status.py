"""The status of Reservations: as the service has them, written once, and never against a user."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from placement.client.client import ServiceError
from placement.scheduling.reservation_status import (
    EXPIRED_CODE,
    RESOURCE_STATUS,
    ReservationUser,
    changes,
    waits_for_owner,
)
from placement.scheduling.reservation_telling import ReservationTeller
from placement.sync.api_server import ApiServer, ApiServerError
from placement.sync.journal import Journal
from placement.sync.leadership import NotLeading
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject, watched_object
from tests.odd_values import EVERYTHING
from tests.reservations import ALLOCATED, reservation
from tests.synchronizing import pod_manifest

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT, BEFORE = "2026-01-31T12:00:00Z", "2026-01-30T00:00:00Z"
HELD = {
    "cpuset": "0-7",
    "numaNodeResources": [{"node": 0, "resources": {"cpu": "8"}}],
    "resources": {"cpu": "8", "memory": "1073741824"},
}
FULL = ServiceError("0/1 nodes are available: 1 Insufficient cpu", 409, "unschedulable")


def stored(name: str = "kept", **status: Any) -> dict[str, Any]:
    """A Reservation as Kubernetes has it."""
    manifest = reservation(name)
    manifest["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7"}
    return {**manifest, "status": status}


def answer(name: str = "kept", **members: Any) -> dict[str, Any]:
    """A reservation as the service answers it."""
    return {
        "uid": f"uid-{name}",
        "node": "host-0",
        "phase": "Available",
        "held": HELD,
        "left": HELD,
        "current_owners": [],
        "expires_at": None,
        **members,
    }


def user(name: str = "web", cpus: int = 3) -> dict[str, Any]:
    """A pod on a node that uses the reservation."""
    manifest = pod_manifest(name, "host-0", cpus=cpus)
    manifest["metadata"]["annotations"] = {ALLOCATED: json.dumps({"name": "kept", "uid": "uid-kept"})}
    return manifest


def reference(pod: dict[str, Any]) -> dict[str, Any]:
    return {name: pod["metadata"][name] for name in ("namespace", "name", "uid")}


def merged(manifest: dict[str, Any], found: Any) -> dict[str, Any]:
    """The Reservation after the patches, by RFC 7396."""

    def merge(present: Any, patch: Any) -> Any:
        if not isinstance(patch, dict):
            return patch
        whole = dict(present) if isinstance(present, dict) else {}
        for name, value in patch.items():
            whole[name] = merge(whole.get(name), value)
        return {name: value for name, value in whole.items() if value is not None}

    patch = {"metadata": {"annotations": found.annotations}, "status": found.status}
    return merge(manifest, patch)


def written(
    manifest: dict[str, Any],
    given: dict[str, Any] | None,
    refusal: ServiceError | None = None,
    owners: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The Reservation after what is written; a second look writes nothing."""
    pods = [ReservationUser.of(pod, "host-0") for pod in owners or []]
    after = merged(manifest, changes(manifest, given, refusal, pods, NOW))
    assert not changes(after, given, refusal, pods, datetime.now(UTC))
    return after


def conditions(manifest: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in manifest["status"]["conditions"]}


def test_one_that_fits_nowhere_is_pending_and_says_why():
    found = written(stored(), None, FULL)["status"]
    assert found == {
        "phase": "Pending",
        "conditions": [
            {
                "type": "Scheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient cpu",
                "lastProbeTime": AT,
                "lastTransitionTime": AT,
            }
        ],
    }


def test_one_that_has_a_place_is_available_with_its_node_cpus_and_amounts():
    pending = written(stored(), None, FULL)
    found = written(pending, answer())
    status = found["status"]
    assert (status["phase"], status["nodeName"]) == ("Available", "host-0")
    assert status["allocatable"] == HELD["resources"]
    assert conditions(found) == {"Scheduled": ("True", "Scheduled"), "Ready": ("True", "Available")}
    assert json.loads(found["metadata"]["annotations"][RESOURCE_STATUS]) == {
        "cpuset": "0-7",
        "numaNodeResources": HELD["numaNodeResources"],
    }
    assert "currentOwners" not in status
    assert "allocated" not in status


def test_owners_come_and_go():
    pods = [user("web", 3), user("api", 2)]
    for pod, uid in zip(pods, "ba", strict=True):
        pod["metadata"]["uid"] = uid
    available = written(stored(), answer())
    used = written(available, answer(current_owners=list(map(reference, pods))), owners=pods)
    assert used["status"]["currentOwners"] == [reference(pods[1]), reference(pods[0])]
    assert used["status"]["allocated"] == {"cpu": "5", "memory": str(2 << 30)}
    assert used["status"]["phase"] == "Available"
    free = written(used, answer())
    assert free["status"]["currentOwners"] == []
    assert free["status"]["allocated"] == {}


def test_amounts_of_owners_that_the_reservation_does_not_hold_are_left_out():
    held = {"cpuset": "", "numaNodeResources": [], "resources": {"cpu": "8"}}
    pod = user()
    found = written(stored(), answer(held=held, current_owners=[reference(pod)]), owners=[pod])
    assert found["status"]["allocated"] == {"cpu": "3"}
    assert RESOURCE_STATUS not in found["metadata"].get("annotations", {})


def test_equal_amounts_in_other_units_and_owners_in_another_order_are_not_written():
    pods = [user("web"), user("api")]
    given = answer(current_owners=list(map(reference, pods)))
    found = written(stored(), given, owners=pods)
    found["status"]["allocatable"] = {"cpu": "8000m", "memory": "1Gi"}
    found["status"]["currentOwners"].reverse()
    found["status"]["currentOwners"][0]["kind"] = "Pod"
    assert not changes(found, given, None, [ReservationUser.of(pod, "host-0") for pod in pods], NOW)


def test_one_that_is_used_up_succeeds_once_its_owner_is_on_the_node():
    pod = user()
    available = written(stored(), answer())
    used_up = answer(phase="Succeeded", node=None, left=None, current_owners=[reference(pod)])
    assert waits_for_owner(used_up, [])
    assert not changes(available, used_up, None, [], NOW)
    found = written(available, used_up, owners=[pod])
    assert (found["status"]["phase"], found["status"]["nodeName"]) == ("Succeeded", "host-0")
    assert found["status"]["currentOwners"] == [reference(pod)]
    assert conditions(found) == {"Scheduled": ("True", "Scheduled"), "Ready": ("False", "Succeeded")}
    assert found["metadata"]["annotations"] == available["metadata"]["annotations"]
    # Its owner came and went before anything was written.
    gone = written(available, {**used_up, "current_owners": []})
    assert (gone["status"]["phase"], gone["status"]["nodeName"]) == ("Succeeded", "host-0")


def test_one_that_expires_fails():
    available = written(stored(), answer())
    found = written(available, answer(phase="Failed", node=None, left=None))
    assert (found["status"]["phase"], found["status"]["nodeName"]) == ("Failed", "host-0")
    assert conditions(found) == {"Scheduled": ("True", "Scheduled"), "Ready": ("False", "Expired")}
    late = ServiceError("it expired already", 400, EXPIRED_CODE)
    never = written(written(stored(), None, FULL), None, late)
    assert never["status"]["phase"] == "Failed"
    assert conditions(never) == {"Scheduled": ("False", "Unschedulable"), "Ready": ("False", "Expired")}


def test_one_whose_node_is_gone_is_pending_again():
    pod = user()
    used = written(stored(), answer(current_owners=[reference(pod)]), owners=[pod])
    found = written(used, None, FULL)
    assert found["status"].keys() == {"phase", "conditions", "allocatable", "allocated", "currentOwners"}
    assert found["status"]["allocatable"] == found["status"]["allocated"] == {}
    assert found["status"]["phase"] == "Pending"
    assert found["status"]["currentOwners"] == []
    assert conditions(found) == {"Scheduled": ("False", "Unschedulable")}
    assert found["metadata"]["annotations"] == {}
    moved = written(used, answer(node="host-1"))
    assert moved["status"]["nodeName"] == "host-1"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_one_that_a_user_has_ended_stays_so(phase):
    assert not changes(stored(phase=phase), answer(), None, [], NOW)
    assert not changes(stored(phase=phase), None, FULL, [], NOW)


def test_nothing_is_written_before_the_service_was_asked():
    assert not changes(stored(), None, None, [], NOW)
    # A former reservation of the name.
    assert not changes(stored(), answer(uid="another"), None, [], NOW)
    assert written(stored(), answer(uid="another"), FULL)["status"]["phase"] == "Pending"


def test_conditions_of_others_stay_and_times_change_with_the_status_only():
    other = {"type": "Audited", "status": "True"}
    was = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    present = stored(phase="Pending", conditions=[other, {**was, "lastTransitionTime": BEFORE}])
    found = written(present, None, FULL)["status"]["conditions"]
    assert found[0] == other
    assert (found[1]["message"], found[1]["lastTransitionTime"]) == (str(FULL), BEFORE)
    placed = written(present, answer())["status"]["conditions"]
    assert {each.get("lastTransitionTime") for each in placed[1:]} == {AT}


def test_long_reasons_are_cut():
    found = written(stored(), None, ServiceError("x" * 100_000, 409))
    assert len(found["status"]["conditions"][0]["message"]) == 1000


@pytest.mark.parametrize("odd", EVERYTHING, ids=repr)
def test_odd_members_are_replaced(odd):
    members = ("phase", "nodeName", "allocatable", "allocated", "currentOwners", "conditions")
    for name in members:
        for value in (odd, [odd], {"cpu": odd}):
            if value not in ("Succeeded", "Failed"):
                found = written(stored(**{name: value}), answer())
                assert (found["status"]["phase"], found["status"]["nodeName"]) == ("Available", "host-0")
    whole = {**stored(), "status": odd}
    assert written(whole, answer())["status"]["phase"] == "Available"


# What the thread does with it.


class Kubernetes(ApiServer):
    """Reservations with a status of their own, or without; patches are merged."""

    def __init__(self, *names: str) -> None:
        self.stored = {name: stored(name) for name in names}
        self.has_status = True
        self.calls: list[tuple[str, str]] = []
        self.fails: dict[str, ApiServerError] = {}
        self.before_patch: Callable[[], None] = lambda: None

    def get(self, path: str) -> Any:
        self.calls.append(("GET", path))
        return self.stored.get(path.split("/")[5])

    def patch(self, path: str, body: Any, media_type: str = "") -> Any:
        self.calls.append(("PATCH", path))
        name = path.split("/")[5]
        self.before_patch()
        if name in self.fails:
            raise self.fails[name]
        is_status = path.endswith("/status")
        if is_status and not self.has_status:
            raise ApiServerError("the server could not find the requested resource", 404)
        metadata = self.stored[name]["metadata"]
        if body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise ApiServerError("the object has been modified", 409)
        patch = dict(body)
        if self.has_status and not is_status:
            patch.pop("status", None)
        changed = type("Found", (), {"annotations": {}, "status": patch.get("status", {})})
        changed.annotations = patch["metadata"].get("annotations", {}) if not is_status else {}
        found = merged(self.stored[name], changed)
        found["metadata"] = {
            **found["metadata"],
            "resourceVersion": str(int(metadata["resourceVersion"]) + 1),
        }
        self.stored[name] = found
        return found


class World:
    """The thread, step by step, with what it asks."""

    def __init__(self, *names: str, schedulers: tuple[str, ...] = ("placement",)) -> None:
        self.kubernetes = Kubernetes(*names)
        self.answers: dict[str, Any] = {}
        self.seen: dict[Key, WatchedObject] = {}
        self.leads = True
        self.output = io.StringIO()
        self.teller = ReservationTeller(
            self.kubernetes,
            self.answers.get,
            self.seen.get,
            schedulers,
            self._allow,
            lambda: self.leads,
            Journal(self.output, self.output),
        )
        self.watch()

    def _allow(self) -> None:
        if not self.leads:
            raise NotLeading("another one leads")

    def watch(self) -> None:
        """The watch shows what Kubernetes has."""
        for name, manifest in self.kubernetes.stored.items():
            self.see(Key(ObjectKind.RESERVATION, "", name), manifest)

    def see(self, key: Key, manifest: dict[str, Any] | None) -> None:
        if manifest is None:
            self.seen.pop(key, None)
        else:
            self.seen[key] = watched_object(manifest)
        self.teller.saw(key, self.seen.get(key))

    def phase(self, name: str) -> Any:
        return self.kubernetes.stored[name]["status"].get("phase")

    def writes(self) -> int:
        return sum(method == "PATCH" for method, _ in self.kubernetes.calls)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(
        "placement.scheduling.reservation_telling.time",
        type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}),
    )

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


@pytest.mark.parametrize("has_status", [True, False])
def test_a_status_is_written_once_whatever_the_watch_shows(has_status):
    world = World("kept")
    world.kubernetes.has_status = has_status
    world.answers["kept"] = answer()
    world.teller.write_due()
    assert world.phase("kept") == "Available"
    assert RESOURCE_STATUS in world.kubernetes.stored["kept"]["metadata"]["annotations"]
    writes = world.writes()
    # The watch does not show it yet.
    world.teller.reserved("kept", None)
    world.teller.write_due()
    world.watch()
    world.teller.write_due()
    assert world.writes() == writes


def test_a_pod_that_comes_and_goes_is_an_owner_meanwhile(clock):
    world, pod = World("kept"), user()
    key = Key(ObjectKind.POD, "default", "web")
    world.answers["kept"] = answer(current_owners=[reference(pod)])
    world.teller.write_due()
    assert "currentOwners" not in world.kubernetes.stored["kept"]["status"]
    world.see(key, pod)
    world.teller.write_due()
    assert world.kubernetes.stored["kept"]["status"]["currentOwners"] == [reference(pod)]
    world.see(key, None)
    world.teller.write_due()
    assert world.kubernetes.stored["kept"]["status"]["currentOwners"] == []


@pytest.mark.parametrize("annotation", ["", "{", "[]", "7", '{"name": 7}', "{}"])
def test_pods_with_odd_annotations_use_nothing(annotation):
    world, pod = World(), user()
    pod["metadata"]["annotations"][ALLOCATED] = annotation
    world.see(Key(ObjectKind.POD, "default", "web"), pod)
    assert world.teller.write_due()
    assert not world.kubernetes.calls


def test_one_that_cannot_be_written_stops_no_other_and_is_tried_again(clock):
    world = World("bad", "good", "odd")
    world.answers |= {"bad": answer("bad"), "good": answer("good"), "odd": {"uid": "uid-odd"}}
    world.kubernetes.fails["bad"] = ApiServerError("admission webhook denied the request", 403)
    assert world.teller.write_due()
    assert (world.phase("bad"), world.phase("good"), world.phase("odd")) == (None, "Available", None)
    del world.kubernetes.fails["bad"]
    world.teller.write_due()
    assert world.phase("bad") is None
    clock(30.0)
    world.teller.write_due()
    assert world.phase("bad") == "Available"
    assert "status of reservation bad: admission webhook denied" in world.output.getvalue()
    assert "status of reservation bad: well again" in world.output.getvalue()


def test_while_nothing_answers_all_stay_due_and_one_line_says_so(clock):
    names = [f"kept-{number}" for number in range(10)]
    world = World(*names)
    world.answers |= {name: answer(name) for name in names}
    world.kubernetes.fails |= dict.fromkeys(names, ApiServerError("cannot be reached"))
    for _ in range(10):
        assert not world.teller.write_due()
    assert world.output.getvalue().count("cannot be reached") == 1
    world.kubernetes.fails.clear()
    clock(30.0)
    assert world.teller.write_due()
    assert {world.phase(name) for name in names} == {"Available"}


def test_one_that_was_changed_meanwhile_is_looked_at_again(clock):
    world = World("kept")
    world.answers["kept"] = answer()
    metadata = world.kubernetes.stored["kept"]["metadata"]

    def another_writes() -> None:
        world.kubernetes.before_patch = lambda: None
        ended = {**stored(), "status": {"phase": "Failed"}}
        ended["metadata"] |= {"resourceVersion": str(int(metadata["resourceVersion"]) + 1)}
        world.kubernetes.stored["kept"] = ended

    world.kubernetes.before_patch = another_writes
    world.teller.write_due()
    clock(30.0)
    world.teller.write_due()
    assert world.kubernetes.stored["kept"]["status"] == {"phase": "Failed"}
    assert world.writes() == 1


@pytest.mark.parametrize("given", [answer(), None])
def test_another_one_of_the_name_is_not_written(given):
    world = World("kept")
    world.answers["kept"] = given
    world.teller.reserved("kept", FULL)
    world.kubernetes.stored["kept"]["metadata"]["uid"] = "uid-newer"
    world.teller.write_due()
    assert world.writes() == 0


def test_a_process_that_does_not_lead_writes_nothing_and_forgets_nothing():
    world = World("one", "two")
    world.answers |= {"one": answer("one"), "two": answer("two")}
    world.leads = False
    assert not world.teller.write_due()
    assert world.writes() == 0
    world.leads = True
    assert world.teller.write_due()
    assert (world.phase("one"), world.phase("two")) == ("Available", "Available")


def test_reservations_of_other_schedulers_are_theirs():
    world = World("kept", "others", "mine")
    for name in ("others", "mine"):
        template = world.kubernetes.stored[name]["spec"]["template"]
        template["spec"] = {**template["spec"], "schedulerName": "placement" if name == "mine" else "koord"}
    world.answers |= {name: answer(name) for name in ("kept", "others", "mine")}
    world.watch()
    world.teller.write_due()
    assert (world.phase("kept"), world.phase("others"), world.phase("mine")) == (
        "Available",
        None,
        "Available",
    )


def test_all_are_looked_at_from_time_to_time_and_when_they_expire(clock):
    world = World("kept")
    world.answers["kept"] = answer()
    world.teller.write_due()
    world.answers["kept"] = answer(node="host-1", expires_at="2020-01-01T00:00:00Z")
    world.teller.write_due()
    assert world.kubernetes.stored["kept"]["status"]["nodeName"] == "host-0"
    clock(600.0)
    world.teller.write_due()
    assert world.kubernetes.stored["kept"]["status"]["nodeName"] == "host-1"
    # By the clock here it has expired, and by that of the service a moment later.
    world.answers["kept"] = answer(phase="Failed", node=None)
    world.teller.write_due()
    assert world.phase("kept") == "Available"
    clock(5.0)
    world.teller.write_due()
    assert world.phase("kept") == "Failed"
    world.watch()
    calls = len(world.kubernetes.calls)
    clock(6000.0)
    world.teller.write_due()
    assert len(world.kubernetes.calls) == calls
