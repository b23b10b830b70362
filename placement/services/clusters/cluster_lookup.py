"""Finding clusters by name, and saying that something is not there."""

from __future__ import annotations

import re

from placement.domain import scope
from placement.domain.errors import NotFound
from placement.storage.database import Executor
from placement.storage.statements import clusters
from placement.storage.statements.clusters import Cluster

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


def found(connection: Executor, name: str) -> Cluster:
    """The cluster of this name. Raises NotFound."""
    cluster = find(connection, name)
    if cluster is None:
        raise unknown(name)
    return cluster


def find(connection: Executor, name: str) -> Cluster | None:
    """The cluster of this name, None if there is none that may be seen."""
    # Names that no cluster can have are not looked up; a database would fail on some of them.
    return clusters.find(connection, name) if NAME.fullmatch(name) and scope.admits(name) else None


def unknown(name: str) -> NotFound:
    """There is no such cluster."""
    return NotFound(f"No cluster {name} found")


def unknown_node(name: str, node_name: str) -> NotFound:
    """There is no such node."""
    return NotFound(f"No node {node_name} found in cluster {name}")


def unknown_pod(name: str, namespace: str, pod: str) -> NotFound:
    """There is no such pod, or no such reservation, which has no namespace."""
    if not namespace:
        return NotFound(f"No reservation {pod} found in cluster {name}")
    return NotFound(f"No pod {namespace}/{pod} found in cluster {name}")
