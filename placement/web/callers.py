"""What the caller of a page may see and do."""

from __future__ import annotations

from typing import Any

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Forbidden
from placement.http import context
from placement.http.context import component, service
from placement.http.policy import Policy
from placement.pods.services.clusters import Clusters


def may(rule: str, cluster: str | None = None, *, own_only: bool = False) -> bool:
    """Return whether the caller passes a policy rule, of a cluster if one is given."""
    try:
        _authorize(rule, cluster, own_only=own_only)
    except Forbidden:
        return False
    return True


def require(rule: str, cluster: str | None = None) -> None:
    """Let the page see what a policy rule is about: one cluster, or all there is.

    Raises Forbidden unless the caller passes it.
    """
    request_scope.show_only(_authorize(rule, cluster))


def _authorize(rule: str, cluster: str | None, *, own_only: bool = False) -> request_scope.ClusterNames:
    target = {} if cluster is None else {"cluster": cluster}
    return component(Policy).authorize(f"placement:{rule}", target, own_only=own_only)


def caller_clusters() -> frozenset[str] | None:
    """Return the clusters that the caller's token is bound to, or None if it is bound to none."""
    return context.current().caller.clusters


def clusters() -> list[Any]:
    """Return the clusters that the caller may see."""
    own = caller_clusters()
    return [each for each in service(Clusters).listed() if own is None or each.name in own]
