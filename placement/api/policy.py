"""Who may do what."""

from __future__ import annotations

from placement.api import context
from placement.domain.errors import Forbidden

_ALLOWED_ROLES = frozenset({"admin", "service"})


class Policy:
    """The rules of this service: administrators and services may do everything, others nothing."""

    def authorize(self, rule: str) -> None:
        """Raises Forbidden unless the caller passes the rule."""
        caller = context.current().caller
        if caller.system_scope:
            raise Forbidden(rule)
        if not caller.roles & _ALLOWED_ROLES:
            raise Forbidden(f"Policy does not allow {rule} to be performed.")
