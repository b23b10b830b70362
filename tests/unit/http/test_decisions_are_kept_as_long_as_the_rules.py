"""A decision of the policy is made once and holds until the rules change; the memory of them is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from oslo_config import cfg
from oslo_policy import policy as library

from placement.engine.domain.errors import Forbidden
from placement.http import context, policy, policy_files
from placement.http.context import Caller, RequestContext
from placement.http.policy import Policy
from tests.conftest import configured

RULE = "placement:traits:list"
READER = Caller("somebody", "project", frozenset({"reader"}))


@pytest.fixture(autouse=True)
def every_look_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_files, "prepared", [])
    monkeypatch.setattr(policy, "_MEMORY_SECONDS", -1.0)
    # Files of this very second count as whole.
    monkeypatch.setattr(policy, "are_settled", lambda _: True)


@pytest.fixture
def settings(tmp_path: Path) -> cfg.ConfigOpts:
    file = tmp_path / "placement.conf"
    file.touch()
    return configured(file)


@pytest.fixture
def asked() -> Iterator[mock.Mock]:
    """How often the library decided."""
    with mock.patch.object(library.Enforcer, "authorize", autospec=True, side_effect=AUTHORIZE) as called:
        yield called


AUTHORIZE = library.Enforcer.authorize


def passes(rules: Policy, caller: Caller = READER, **target: str) -> bool:
    context.begin(RequestContext("req-1", caller=caller))
    return rules.passes(RULE, target)


def rules_of(settings: cfg.ConfigOpts, tmp_path: Path, text: str) -> Policy:
    write(tmp_path, text)
    return Policy(settings)


def write(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.yaml").write_text(f'"{RULE}": "{text}"\n')


def test_equal_requests_are_decided_once(settings: cfg.ConfigOpts, tmp_path: Path, asked: mock.Mock):
    rules = rules_of(settings, tmp_path, "role:reader or cluster:%(cluster)s")
    assert [passes(rules) for _ in range(3)] == [True] * 3
    assert asked.call_count == 1
    other = Caller("somebody", "project", frozenset())
    assert [passes(rules, other), passes(rules, other), passes(rules, cluster="edge")] == [False, False, True]
    assert asked.call_count == 3


def test_changed_rules_count_with_the_next_look(settings: cfg.ConfigOpts, tmp_path: Path):
    rules = rules_of(settings, tmp_path, "role:reader")
    assert passes(rules)
    write(tmp_path, "role:somebody-else")
    assert not passes(rules)
    write(tmp_path, "role:reader")
    assert passes(rules)


def test_broken_rules_leave_decisions_as_they_were(settings: cfg.ConfigOpts, tmp_path: Path):
    rules = rules_of(settings, tmp_path, "role:other")
    assert not passes(rules)
    write(tmp_path, "(role:reader")
    assert not passes(rules)


@pytest.mark.parametrize(
    "rule", ["http://127.0.0.1:1/%(cluster)s", "role:x or not http://127.0.0.1:1/", "(role:x or rule:remote)"]
)
def test_decisions_of_other_servers_are_asked_for_again(settings: cfg.ConfigOpts, tmp_path: Path, rule: str):
    (tmp_path / "policy.yaml").write_text(f'"{RULE}": "{rule}"\n"remote": "https://127.0.0.1:1/x"\n')
    answers = iter([True, False])
    rules = Policy(settings)
    with mock.patch.object(
        library.Enforcer, "authorize", autospec=True, side_effect=lambda *_, **__: next(answers)
    ):
        assert [passes(rules), passes(rules)] == [True, False]


def test_the_memory_of_decisions_is_bounded(
    settings: cfg.ConfigOpts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(policy, "_MOST_DECISIONS", 5)
    rules = rules_of(settings, tmp_path, "role:reader")
    for number in range(20):
        assert passes(rules, cluster=f"cluster-{number}")
        assert len(rules._decisions.allowed) <= 5
    before = {*rules._decisions.allowed}
    assert passes(rules, cluster="x" * 256)
    for long in (
        replace(READER, user_id="x" * 256),
        replace(READER, project_id="x" * 256),
        replace(READER, domain_id="x" * 256),
        replace(READER, roles=READER.roles | {"x" * 256}),
        replace(READER, roles=READER.roles | {f"role-{number}" for number in range(100)}),
        replace(READER, clusters=frozenset({"x" * 256, "edge"})),
    ):
        passes(rules, long, cluster="edge")
    assert {*rules._decisions.allowed} == before


def test_what_cannot_be_decided_is_refused_and_not_remembered(settings: cfg.ConfigOpts, tmp_path: Path):
    rules = rules_of(settings, tmp_path, "role:reader")
    with mock.patch.object(library.Enforcer, "authorize", side_effect=library.InvalidScope(RULE, [], "")):
        assert not passes(rules)
    with (
        mock.patch.object(library.Enforcer, "authorize", side_effect=KeyError("x")),
        pytest.raises(KeyError, match="x"),
    ):
        passes(rules)
    assert passes(rules)
    with pytest.raises(Forbidden):
        rules.authorize("placement:traits:update", {})
