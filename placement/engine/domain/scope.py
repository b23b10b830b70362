"""The clusters that the current work may see: everything, or what some clusters have.

The gate sets them for each request (`app`, `http.gate`), and everything that reads heeds them
(`providers.scoping`). Before its gate ran, a request sees nothing: a forgotten gate shows nothing. Outside of
requests all is visible: commands and threads of the service itself are bound to no cluster.
"""

from __future__ import annotations

from contextvars import ContextVar

Clusters = frozenset[str] | None
"""Names of clusters, None for everything, including hosts that are in no cluster."""
EVERYTHING: Clusters = None
NOTHING: Clusters = frozenset()
_seen: ContextVar[Clusters] = ContextVar("placement_scope", default=EVERYTHING)


def see(clusters: Clusters) -> None:
    """Let this thread (or context) see these clusters from now on, and nothing else."""
    _seen.set(clusters)


def seen() -> Clusters:
    """Return the clusters that may be seen at the moment."""
    return _seen.get()


def admits(cluster: str | None) -> bool:
    """Return whether a cluster may be seen; None stands for everything."""
    clusters = _seen.get()
    return clusters is None or cluster in clusters
