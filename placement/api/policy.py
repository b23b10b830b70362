"""Authorisation: the rules of this service with the changes of an operator's policy files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from placement.api import context
from placement.api.context import Caller
from placement.api.policy_rules import BadPolicy, enforcer_of, fingerprint
from placement.api.rules import ELSEWHERE
from placement.domain import scope
from placement.domain.errors import Forbidden

LOG = logging.getLogger(__name__)
_MEMORY_SECONDS = 1.0
# The rules that the process which starts the workers has read, for those that start while a file is broken.
_prepared: list[policy.Enforcer] = []


def prepare(configuration: cfg.ConfigOpts) -> Callable[[], None]:
    """Read the rules; calling the result hands them to processes that are started from then on.

    Raises BadPolicy.
    """
    opts._register(configuration)
    enforcer = enforcer_of(configuration)

    def publish() -> None:
        _prepared[:] = [enforcer]

    return publish


class Policy:
    """Checks callers against rules; a changed file counts within a second, unless it is broken."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """The rules of the configuration, or those that were prepared if it is broken. Raises BadPolicy."""
        opts._register(configuration)
        self._configuration = configuration
        self._read = fingerprint(configuration)
        self._enforcer = self._first()
        # A decision costs as much as a search, and the same few callers ask for the same few things.
        self._judged: dict[tuple[str, Caller, frozenset[tuple[str, str]]], bool] = {}
        self._judged_since = time.monotonic()
        self._turn = threading.Lock()

    def _first(self) -> policy.Enforcer:
        try:
            return enforcer_of(self._configuration)
        except BadPolicy as error:
            if not _prepared:
                raise
            LOG.error("%s The rules are those of the service's start or last SIGHUP.", error)
            return _prepared[0]

    def knows(self, rule: str) -> bool:
        """Whether there is such a rule."""
        return rule in self._enforcer.registered_rules

    def authorize(self, rule: str, target: dict[str, str], *, own_only: bool = False) -> scope.Clusters:
        """Return the clusters that the caller may see then. Raises Forbidden unless it passes the rule.

        A caller who is bound to clusters is refused elsewhere: the target must name one of these, or the
        route is `own_only` and shows such a caller nothing else, or the rule for elsewhere allows it.
        """
        caller = context.current().caller
        sees = self._seen_by(rule, caller, target, own_only=own_only)
        if not self._allows(rule, caller, target):
            raise Forbidden(f"Policy does not allow {rule} to be performed.")
        return sees

    def _seen_by(
        self, rule: str, caller: Caller, target: dict[str, str], *, own_only: bool
    ) -> scope.Clusters:
        if caller.clusters is None:
            return scope.EVERYTHING
        cluster = target.get("cluster")
        if cluster is None and self._allows(ELSEWHERE, caller, target):
            return scope.EVERYTHING
        if own_only:
            return caller.clusters
        if cluster is None or cluster not in caller.clusters:
            raise Forbidden(
                f"Policy does not allow {rule} to be performed: this token is bound to other clusters."
                if cluster is not None
                else f"Policy does not allow {rule} to be performed: this token is bound to clusters."
            )
        return frozenset((cluster,))

    def _allows(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        now = time.monotonic()
        if now - self._judged_since > _MEMORY_SECONDS:
            self._refresh(now)
        judged = self._judged
        case = rule, caller, frozenset(target.items())
        allowed = judged.get(case)
        if allowed is None:
            allowed = judged[case] = self._judge(rule, caller, target)
        return allowed

    def _refresh(self, now: float) -> None:
        """Forget decisions, and use the present files if they are valid."""
        with self._turn:
            if now - self._judged_since <= _MEMORY_SECONDS:
                return
            found = fingerprint(self._configuration)
            if found != self._read:
                self._read = found
                try:
                    self._enforcer = enforcer_of(self._configuration)
                except BadPolicy as error:
                    LOG.error("%s The rules stay as they were.", error)
            self._judged, self._judged_since = {}, now

    def _judge(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        try:
            return bool(self._enforcer.authorize(rule, target, _credentials(caller), do_raise=True))
        except policy.InvalidScope:
            raise Forbidden(rule) from None
        except policy.PolicyNotAuthorized:
            return False


def _credentials(caller: Caller) -> dict[str, Any]:
    """The properties of a caller for rules; absent ones are left out, lest a rule compares with "None"."""
    credentials: dict[str, Any] = {"roles": sorted(caller.roles)}
    for name in ("user_id", "project_id", "domain_id"):
        value = getattr(caller, name)
        if value:
            credentials[name] = value
    if caller.clusters is not None:
        credentials["clusters"] = sorted(caller.clusters)
    if caller.system_scope:
        credentials["system_scope"] = "all"
    return credentials
