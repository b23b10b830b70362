"""Authorisation: the rules of this service, changed by an operator's policy files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flask import g
from oslo_config import cfg
from oslo_policy import policy

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Forbidden
from placement.http import policy_files
from placement.http.context import Caller
from placement.http.policy_files import BadPolicy, FileStamp, are_settled, marks_of
from placement.http.rules import ELSEWHERE

_MEMORY_SECONDS = 1.0
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


class Policy:
    """A checker of callers against rules; a changed file counts once it is whole, unless it is broken."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Read the rules, or take the prepared ones if the files are broken. Raises BadPolicy."""
        self._configuration = configuration
        try:
            self._rules = policy_files.read(configuration)
            policy_files.note(self._rules, None)
        except BadPolicy as error:
            if not policy_files.prepared:
                raise
            LOG.error("%s The rules are those of the service's start or last SIGHUP.", error)
            self._rules = policy_files.prepared[0]
        # The files as they were read last, with or without success, and as they were seen last.
        self._read: object = self._rules.marks
        self._seen: object = self._read
        # A decision costs as much as a search, and a few callers repeat a few requests.
        self._judged: dict[tuple[str, Caller, frozenset[tuple[str, str]]], bool] = {}
        self._judged_since = time.monotonic()
        self._turn = threading.Lock()

    @property
    def known(self) -> frozenset[str]:
        """Return the names of the rules."""
        return frozenset(self._rules.enforcer.registered_rules)

    def authorize(
        self, rule: str, target: dict[str, str], *, own_only: bool = False
    ) -> request_scope.ClusterNames:
        """Return the clusters that the caller may see. Raises Forbidden unless it passes the rule.

        A caller that is bound to clusters is refused elsewhere: the target must name one of these, or the
        route is `own_only` and shows such a caller nothing else, or the rule for elsewhere allows it.
        """
        caller, refused = g.placement.caller, f"Policy does not allow {rule} to be performed"
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
        if now - self._judged_since > _MEMORY_SECONDS:
            self._refresh(now)
        judged = self._judged
        case = rule, caller, frozenset(target.items())
        allowed = judged.get(case)
        if allowed is None:
            try:
                credentials = _credentials(caller)
                allowed = bool(self._rules.enforcer.authorize(rule, target, credentials, do_raise=True))
            except policy.InvalidScope:
                raise Forbidden(rule) from None
            except policy.PolicyNotAuthorized:
                allowed = False
            judged[case] = allowed
        return allowed

    def _refresh(self, now: float) -> None:
        """Forget decisions, and use the present files if they are valid.

        A file that was just changed is looked at once more before it is read: it may be half written.
        """
        with self._turn:
            if now - self._judged_since <= _MEMORY_SECONDS:
                return
            try:
                self._read_again()
            except BadPolicy as error:
                LOG.error("%s The rules stay as they were.", error)
            self._judged, self._judged_since = {}, now

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
        self._rules = policy_files.read(self._configuration, self._rules)
        self._read = self._rules.marks
        policy_files.note(self._rules, None)


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
