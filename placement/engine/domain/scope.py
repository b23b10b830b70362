"""Which clusters the work at hand may see: all there is, or what some clusters have.

The gate says it for each request (`app`, `http.gate`); whatever reads heeds it
(`providers.scoping`). A request sees nothing before its gate has spoken: a forgotten gate shows nothing.
Outside of requests everything is seen: commands and threads of the service itself are bound to no cluster.
"""

from __future__ import annotations

from contextvars import ContextVar

Clusters = frozenset[str] | None
"""Names of clusters, None for all there is, hosts of no cluster included."""
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
    """Return whether a cluster may be seen; None stands for all there is."""
    clusters = _seen.get()
    return clusters is None or cluster in clusters
