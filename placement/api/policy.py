"""Who may do what: the rules of this service and what an operator's policy file makes of them."""

from __future__ import annotations

import time
from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from placement.api import context
from placement.api.context import Caller
from placement.api.rules import list_rules
from placement.domain.errors import Forbidden

SCOPE_OPTION = cfg.BoolOpt(
    "enforce_scope", default=True, help="Refuse tokens whose scope a rule is not meant for."
)

_MEMORY_SECONDS = 1.0


class Policy:
    """Judges callers by rules; a changed file counts within a second."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        opts._register(configuration)
        configuration.register_opt(SCOPE_OPTION, group="oslo_policy")
        self._enforce_scope = configuration.oslo_policy.enforce_scope
        self._enforcer = policy.Enforcer(configuration)
        # Every rule has the same older default; one line in the documentation says it better than a
        # warning per rule and process.
        self._enforcer.suppress_deprecation_warnings = True
        self._enforcer.suppress_default_change_warnings = True
        self._enforcer.register_defaults(list(list_rules()))
        self._enforcer.load_rules()
        # Judging costs as much as a search; the same few callers ask the same few things all the time.
        self._judged: dict[tuple[str, Caller, frozenset[tuple[str, str]]], bool] = {}
        self._judged_since = 0.0

    def knows(self, rule: str) -> bool:
        """Whether there is such a rule."""
        return rule in self._enforcer.registered_rules

    def authorize(self, rule: str, **target: str) -> None:
        """Raises Forbidden unless the caller passes the rule on the target."""
        caller = context.current().caller
        now = time.monotonic()
        if now - self._judged_since > _MEMORY_SECONDS:
            self._judged, self._judged_since = {}, now
        case = rule, caller, frozenset(target.items())
        allowed = self._judged.get(case)
        if allowed is None:
            allowed = self._judged[case] = self._judge(rule, caller, target)
        if not allowed:
            raise Forbidden(f"Policy does not allow {rule} to be performed.")

    def _judge(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        credentials: dict[str, Any] = {
            "user_id": caller.user_id,
            "project_id": caller.project_id,
            "roles": sorted(caller.roles),
        }
        if caller.system_scope and self._enforce_scope:
            credentials["system_scope"] = "all"
        try:
            return bool(self._enforcer.authorize(rule, target, credentials, do_raise=True))
        except policy.InvalidScope:
            raise Forbidden(rule) from None
        except policy.PolicyNotAuthorized:
            return False
