"""What the caller may see and do."""

from __future__ import annotations

from typing import Any

from flask import current_app

from placement.api import context
from placement.api.context import use_cases
from placement.domain import scope
from placement.domain.errors import Forbidden


def may(rule: str, cluster: str | None = None, *, own_only: bool = False) -> bool:
    """Whether the caller passes a policy rule, of a cluster if one is given."""
    try:
        _authorize(rule, cluster, own_only=own_only)
    except Forbidden:
        return False
    return True


def require(rule: str, cluster: str | None = None) -> None:
    """Let the page see what a policy rule is about: one cluster, or all there is.

    Raises Forbidden unless the caller passes it.
    """
    scope.see(_authorize(rule, cluster))


def _authorize(rule: str, cluster: str | None, *, own_only: bool = False) -> scope.Clusters:
    target = {} if cluster is None else {"cluster": cluster}
    sees: scope.Clusters = current_app.extensions["placement_policy"].authorize(
        f"placement:{rule}", target, own_only=own_only
    )
    return sees


def caller_clusters() -> frozenset[str] | None:
    """The clusters that the caller's token is bound to, None if it is bound to none."""
    return context.current().caller.clusters


def clusters() -> list[Any]:
    """The clusters that the caller may see."""
    own = caller_clusters()
    return [each for each in use_cases().clusters.listed() if own is None or each.name in own]
