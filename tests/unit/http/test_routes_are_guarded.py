"""A handler runs only behind its guard: version, media types and policy, in this order."""

import pytest
from flask import Blueprint, Flask

from placement.engine.domain.errors import Forbidden, NotFound
from placement.http import context, gate
from placement.http.gate import guarded_by, route
from placement.http.microversions import Feature, Microversion
from placement.http.responses import HttpError


class Policy:
    """Notes what it is asked, and refuses the rules in `refused`."""

    def __init__(self):
        self.asked, self.refused = [], set()

    def authorize(self, rule, target, *, own_only=False):
        self.asked.append((rule, target, own_only))
        if rule in self.refused:
            raise Forbidden("no")


@pytest.fixture
def served(monkeypatch):
    """A function that registers a handler with some guard and calls it; what it returns or raises."""
    policy = Policy()
    # Applications of other tests know no such rules.
    monkeypatch.setattr(gate, "_RULES", set(guarded_by()))

    def call(minor=39, path="/things", rule="test:things", method="GET", headers=None, **guard):
        application, blueprint = Flask("test"), Blueprint("test", __name__)
        application.extensions["placement_policy"] = policy
        route(blueprint, "/things/<cluster>" if "things/" in path else "/things", method, rule, **guard)(
            lambda **arguments: f"handled {arguments}"
        )
        application.register_blueprint(blueprint)
        environment = {context.ENVIRONMENT_KEY: "req-1"}
        with application.test_request_context(
            path, method=method, headers=headers, environ_overrides=environment
        ) as around:
            context.begin()
            context.current().version = Microversion(1, minor)
            answer = application.dispatch_request()
            return answer, around.request.environ[context.READS_KEY]

    call.policy = policy
    return call


def test_the_policy_is_asked_for_the_rule_and_the_cluster_in_the_path(served):
    assert served(path="/things/edge", target=lambda: {"project_id": "p"}, own_only=True) == (
        "handled {'cluster': 'edge'}",
        False,
    )
    assert served.policy.asked == [("test:things", {"project_id": "p", "cluster": "edge"}, True)]
    assert "test:things" in guarded_by()


def test_who_may_not_does_not_reach_the_handler(served):
    served.policy.refused.add("test:things")
    with pytest.raises(Forbidden):
        served()


def test_below_its_version_a_route_is_not_there_and_nobody_is_asked(served):
    with pytest.raises(NotFound):
        served(24, since=Feature.GRANULAR_GROUPS)
    assert served.policy.asked == []
    assert served(25, since=Feature.GRANULAR_GROUPS)[0] == "handled {}"


def test_below_its_version_a_method_is_not_allowed(served):
    with pytest.raises(HttpError) as refused:
        served(4, missing_method_below=Feature.DELETE_ALL_INVENTORIES)
    assert refused.value.status == 405
    assert served(5, missing_method_below=Feature.DELETE_ALL_INVENTORIES)[0] == "handled {}"


def test_bodies_must_be_json_where_json_is_taken(served):
    with pytest.raises(HttpError) as refused:
        served(method="POST", takes_json=True, headers={"Content-Type": "text/plain"})
    assert refused.value.status == 415
    sent = {"Content-Type": "application/json; charset=utf-8"}
    assert served(method="POST", takes_json=True, headers=sent)[0] == "handled {}"


def test_json_must_be_acceptable_where_it_is_given(served):
    with pytest.raises(HttpError) as refused:
        served(gives_json=True, headers={"Accept": "text/plain"})
    assert refused.value.status == 406
    assert served(gives_json=True, headers={"Accept": "application/*"})[0] == "handled {}"


def test_the_version_comes_before_media_types_unless_these_come_first(served):
    wrong = {"since": Feature.GRANULAR_GROUPS, "gives_json": True, "headers": {"Accept": "text/plain"}}
    with pytest.raises(NotFound):
        served(1, **wrong)
    with pytest.raises(HttpError):
        served(1, media_types_first=True, **wrong)
    assert served.policy.asked == []


def test_a_handler_that_changes_nothing_can_say_so(served):
    assert served(method="POST", reads=True) == ("handled {}", True)
