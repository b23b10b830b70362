"""Authorisation: the rules of this service, changed by an operator's policy files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Forbidden
from placement.http import policy_files
from placement.http.context import Caller, current
from placement.http.policy_files import BadPolicy, FileStamp, PolicyRules, are_settled, marks_of
from placement.http.rules import ELSEWHERE

# The files are looked at once in that time, and so are servers that rules ask.
_MEMORY_SECONDS = 1.0
# Callers repeat a few requests. A target may name any cluster, also one that is as long as a body, and tokens
# any roles.
_MOST_DECISIONS = 2_000
_LONGEST_REMEMBERED = 255
_MOST_NAMES_REMEMBERED = 100
# Operators know its lines by this name.
LOG = logging.getLogger("placement.http.gate")


@policy.register("cluster")
class ClusterCheck(policy.Check):
    """A check `cluster:%(cluster)s` that the token is bound to the cluster that is asked about.

    `cluster:edge` checks that it is bound to that one. A token that is bound to no clusters does not pass.
    """

    def __call__(self, target: Any, creds: Any, enforcer: Any, current_rule: str | None = None) -> bool:
        try:
            wanted = self.match % target
        except KeyError:
            return False
        return wanted in creds.get("clusters", ())


_Case = tuple[str, Caller, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class _PolicyDecisions:
    """Rules and what they decided, as each decision costs as much as a search.

    `are_final`: the rules look at nothing but caller and target.
    """

    rules: PolicyRules
    are_final: bool
    allowed: dict[_Case, bool] = field(default_factory=dict)

    @classmethod
    def by(cls, rules: PolicyRules) -> _PolicyDecisions:
        """Return the decisions by these rules, none so far."""
        return cls(rules, are_final=not _ask_others(rules.enforcer.rules.values()))

    def note(self, case: _Case, *, is_allowed: bool) -> None:
        """Remember a decision; where there are too many, all others are forgotten."""
        _, caller, target = case
        ids = [each or "" for each in (caller.user_id, caller.project_id, caller.domain_id)]
        names = [*ids, *caller.roles, *(caller.clusters or ()), *(value for _, value in target)]
        if len(names) > _MOST_NAMES_REMEMBERED or any(len(name) > _LONGEST_REMEMBERED for name in names):
            return
        if len(self.allowed) >= _MOST_DECISIONS:
            self.allowed.clear()
        self.allowed[case] = is_allowed


def _ask_others(checks: Iterable[Any]) -> bool:
    """Return whether one of the checks may depend on more than caller and target, as `http://...` does."""
    found = list(checks)
    while found:
        check = found.pop()
        if type(check).__module__ not in _OF_CALLER_AND_TARGET:
            return True
        found += getattr(check, "rules", ())
        found += [check.rule] if isinstance(check, policy.NotCheck) else []
    return False


# Those of the library that ask servers have a module of their own.
_OF_CALLER_AND_TARGET = (policy.Check.__module__, __name__)


class Policy:
    """A checker of callers against rules; a changed file counts once it is whole, unless it is broken."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Read the rules, or take the prepared ones if the files are broken. Raises BadPolicy."""
        self._configuration = configuration
        try:
            rules = policy_files.read(configuration)
            policy_files.note(rules, None)
        except BadPolicy as error:
            if not policy_files.prepared:
                raise
            LOG.error("%s The rules are those of the service's start or last SIGHUP.", error)
            rules = policy_files.prepared[0]
        self._decisions = _PolicyDecisions.by(rules)
        # The files as they were read last, with or without success, and as they were seen last.
        self._read: object = rules.marks
        self._seen: object = self._read
        self._looked_at = time.monotonic()
        self._turn = threading.Lock()

    @property
    def known(self) -> frozenset[str]:
        """Return the names of the rules."""
        return frozenset(self._decisions.rules.enforcer.registered_rules)

    def authorize(
        self, rule: str, target: dict[str, str], *, own_only: bool = False
    ) -> request_scope.ClusterNames:
        """Return the clusters that the caller may see. Raises Forbidden unless it passes the rule.

        A caller that is bound to clusters is refused elsewhere: the target must name one of these, or the
        route is `own_only` and shows such a caller nothing else, or the rule for elsewhere allows it.
        """
        caller, refused = current().caller, f"Policy does not allow {rule} to be performed"
        bound, cluster = caller.clusters, target.get("cluster")
        sees: request_scope.ClusterNames
        if bound is None or (cluster is None and self._allows(ELSEWHERE, caller, target)):
            sees = request_scope.EVERYTHING
        elif own_only:
            sees = bound
        elif cluster is None:
            none = f"the request names none, such as cluster={min(bound, default='NAME')}"
            raise Forbidden(f"{refused}: this token is bound to clusters, and {none}.")
        elif cluster not in bound:
            raise Forbidden(f"{refused}: this token is bound to other clusters.")
        else:
            sees = frozenset((cluster,))
        if not self._allows(rule, caller, target):
            raise Forbidden(f"{refused}.")
        return sees

    def passes(self, rule: str, target: Mapping[str, str]) -> bool:
        """Return whether the caller passes the rule."""
        try:
            self.authorize(rule, dict(target))
        except Forbidden:
            return False
        return True

    def _allows(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        now = time.monotonic()
        if now - self._looked_at > _MEMORY_SECONDS:
            self._refresh(now)
        decisions = self._decisions
        case = rule, caller, frozenset(target.items())
        allowed = decisions.allowed.get(case)
        if allowed is None:
            try:
                credentials = _credentials(caller)
                enforcer = decisions.rules.enforcer
                allowed = bool(enforcer.authorize(rule, target, credentials, do_raise=True))
            except policy.InvalidScope:
                raise Forbidden(rule) from None
            except policy.PolicyNotAuthorized:
                allowed = False
            decisions.note(case, is_allowed=allowed)
        return allowed

    def _refresh(self, now: float) -> None:
        """Use the present files if they are valid, and forget decisions that other servers had a part in.

        A file that was just changed is looked at once more before it is read: it may be half written.
        """
        with self._turn:
            if now - self._looked_at <= _MEMORY_SECONDS:
                return
            try:
                self._read_again()
            except BadPolicy as error:
                LOG.error("%s The rules stay as they were.", error)
            if not self._decisions.are_final:
                self._decisions = replace(self._decisions, allowed={})
            self._looked_at = now

    def _read_again(self) -> None:
        """Use the present files if they have changed. Raises BadPolicy, once for each change."""
        found: dict[Path, FileStamp] | str
        try:
            found = marks_of(self._configuration)
        except BadPolicy as error:
            found = str(error)
        was_seen, self._seen = found == self._seen, found
        if found == self._read or not (was_seen or (isinstance(found, dict) and are_settled(found))):
            return
        self._read = found
        rules = policy_files.read(self._configuration, self._decisions.rules)
        self._decisions, self._read = _PolicyDecisions.by(rules), rules.marks
        policy_files.note(rules, None)


def _credentials(caller: Caller) -> dict[str, Any]:
    """Return the properties of a caller for rules; absent ones would be compared as "None"."""
    names = ("user_id", "project_id", "domain_id")
    credentials = {name: getattr(caller, name) for name in names if getattr(caller, name)}
    credentials["roles"] = sorted(caller.roles)
    if caller.clusters is not None:
        credentials["clusters"] = sorted(caller.clusters)
    if caller.system_scope:
        credentials["system_scope"] = "all"
    return credentials
