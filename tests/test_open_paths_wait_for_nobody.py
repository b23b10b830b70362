"""What needs no token is said in one place: who asks for it is not limited, and waits for no search."""

import inspect

import pytest
from flask import Flask, Response

from placement.app import create_application
from placement.common.probes import OPEN_PATHS
from placement.http.registry import registry_of
from placement.http.strategies.authentication import Authentication
from placement.http.worker.lanes import Lanes, WorkerLimits
from placement.web.signing_in import SIGN_IN, SIGN_OUT
from tests.client import Client
from tests.conftest import compatible


@pytest.fixture
def served(embedded_application: Flask) -> Client:
    """Requests without a token to a service that answers one request of a caller at a time, with /open."""
    made = create_application(registry_of(embedded_application), compatible(max_requests_per_caller=1))
    registry_of(made)[Authentication].open_paths |= {"/open"}
    for path in ("/open", "/closed"):
        made.add_url_rule(path, endpoint=path, view_func=lambda: Response(iter([b"x", b"x"])))
    return Client(made.test_client(), token=None)


@pytest.mark.parametrize("path", ["/", "/open"])
def test_an_open_path_is_open_and_not_limited(served: Client, path: str):
    answers = [served.get(path) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    for answer in answers:
        answer.close()


def test_other_paths_are_neither(served: Client):
    assert served.get("/closed").status_code == 401
    first, second = (served.as_("somebody").get("/closed") for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 429)
    first.close()


def test_open_paths_have_threads_of_their_own():
    lanes = Lanes(WorkerLimits())
    assert all(lanes.of("GET", path) is lanes.status for path in OPEN_PATHS)


def test_signing_in_takes_no_thread_of_others():
    """Strangers sign in, and a slow identity service keeps them waiting."""
    lanes = Lanes(WorkerLimits())
    others = [lanes.of("GET", "/traits"), lanes.of("PUT", "/traits/X"), lanes.status, lanes.events]
    for path in (SIGN_IN, "/ui/sign%2Din", "/%75i/sign-in"):
        assert lanes.of("POST", path) not in others
    assert lanes.of("POST", SIGN_OUT) is lanes.of("PUT", "/traits/X")


def test_whatever_changes_nothing_waits_for_no_write(embedded_application: Flask):
    """A POST that only looks may take as long as a search; it takes no thread from those who write."""
    lanes = Lanes(WorkerLimits())
    posts = {
        rule.rule: inspect.getclosurevars(embedded_application.view_functions[rule.endpoint]).nonlocals
        for rule in embedded_application.url_map.iter_rules()
        if "POST" in (rule.methods or ())
    }
    reading = {path for path, said in posts.items() if said.get("reads")}
    assert {"/ext/v1/capacity", "/ui/why"} <= reading
    assert {path for path in posts if lanes.of("POST", path) is lanes.of("GET", path)} == reading
