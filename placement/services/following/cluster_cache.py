"""This process's image of clusters: every node with its pods, in step with the database at each use.

One statement asks what changed; nodes of which any provider was stamped are read again. The image is advice:
what is decided on it is only carried out if the node is still the same (PodWriting).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from placement.domain import deadline
from placement.domain.errors import Unavailable
from placement.scheduling.columns.node_columns import NodeColumns
from placement.services.clusters.cluster_lookup import found
from placement.services.clusters.node_loading import ClusterFacts, NodeLoader, facts_of
from placement.services.clusters.node_states import NodeState
from placement.storage.changes.feed import Feed, Look
from placement.storage.changes.history import Horizon
from placement.storage.database import Database

# Longer than any look, shorter than what callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20


@dataclass(frozen=True, eq=False)
class ClusterSnapshot:
    """The nodes of a cluster as of one moment, by the id of their host provider."""

    facts: ClusterFacts
    nodes: Mapping[int, NodeState]
    columns: NodeColumns[NodeState]

    @cached_property
    def by_name(self) -> Mapping[str, NodeState]:
        """The nodes by name."""
        return {state.row.name: state for state in self.nodes.values()}


@dataclass(slots=True)
class _Image:
    facts: ClusterFacts
    nodes: dict[int, NodeState]
    columns: NodeColumns[NodeState] = field(default_factory=NodeColumns)
    view: ClusterSnapshot | None = None

    @classmethod
    def of(cls, facts: ClusterFacts, nodes: dict[int, NodeState]) -> _Image:
        return cls(facts, nodes, NodeColumns[NodeState]().updated(nodes.values()))

    def replace(self, roots: Iterable[int], fresh: Mapping[int, NodeState]) -> None:
        before = [self.nodes.pop(root_id) for root_id in roots if root_id in self.nodes]
        self.nodes.update(fresh)
        names = {state.name for state in fresh.values()}
        gone = {state.name for state in before} - names
        self.columns = self.columns.updated(fresh.values(), gone)
        self.view = None

    def viewed(self) -> ClusterSnapshot:
        if self.view is None:
            self.view = ClusterSnapshot(self.facts, MappingProxyType(dict(self.nodes)), self.columns)
        return self.view


@dataclass(slots=True)
class _Progress:
    """How far the image has come: where to look from, and what was seen there already."""

    horizon: Horizon
    seen: set[tuple[int, int]] = field(default_factory=set)


class ClusterCache:
    """The images of clusters that were asked for; a view has every write that was committed before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)
        self._images: dict[int, _Image] = {}
        self._ids: dict[str, int] = {}
        self._progress: _Progress | None = None
        self._lock = threading.Lock()
        self.loader = NodeLoader()

    def view(self, cluster: str) -> ClusterSnapshot:
        """The cluster as it is now. Raises NotFound, Unavailable; never guesses."""
        if not self._lock.acquire(timeout=deadline.remaining(_PATIENCE_SECONDS)):
            raise Unavailable("The nodes are still being loaded, or the database is slow; try again.")
        try:
            self._catch_up()
            id_ = self._ids.get(cluster)
            image = self._load(cluster) if id_ is None else self._images[id_]
            return image.viewed()
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        if self._progress is None:
            return
        look = self._feed.look(self._progress.horizon)
        if look is None:
            return
        if look.horizon < self._progress.horizon:
            # The database is an older one than we know: restored, or a replica that lagged behind.
            self._forget()
            return
        try:
            self._apply(look)
        except BaseException:
            # Half an image must not pass for a whole one.
            self._forget()
            raise

    def _apply(self, look: Look) -> None:
        assert self._progress is not None
        for id_ in look.clusters:
            image = self._images.pop(id_, None)
            if image is not None:
                del self._ids[image.facts.name]
        rows = {(row.id, row.revision): row for row in look.changed if row.cluster_id in self._images}
        stale: dict[int, set[int]] = {}
        for key, row in rows.items():
            if key not in self._progress.seen and row.cluster_id is not None:
                stale.setdefault(row.cluster_id, set()).add(row.root_id or row.id)
        for image in self._images.values():
            gone = image.nodes.keys() & set(look.deleted)
            if gone:
                image.replace(gone, {})
        for cluster_id, roots in stale.items():
            self._read_again(self._images[cluster_id], roots, look.horizon)
        self._progress.seen = set(rows)
        self._progress.horizon = look.horizon

    def _read_again(self, image: _Image, roots: set[int], horizon: int) -> None:
        with self._database.snapshot() as connection:
            self._feed.check(connection, horizon)
            fresh = self.loader.load(connection, image.facts, roots, image.nodes)
        image.replace(roots, fresh)

    def _load(self, name: str) -> _Image:
        with self._database.snapshot() as connection:
            horizon = self._feed.horizon(connection)
            if self._progress is not None and self._progress.horizon.history != horizon.history:
                # What is known of other clusters is of another history.
                self._forget()
            facts = facts_of(found(connection, name))
            states = self.loader.load(connection, facts)
        # Columns of many nodes take a while, for which the server would wait with its transaction open.
        image = _Image.of(facts, states)
        if self._progress is None:
            self._progress = _Progress(horizon)
        self._images[facts.id] = image
        self._ids[name] = facts.id
        # Thousands of nodes that stay would be walked through by every full collection.
        gc.collect()
        gc.freeze()
        return image

    def _forget(self) -> None:
        self._images.clear()
        self._ids.clear()
        self._progress = None

    def close(self) -> None:
        """Give back the connection."""
        self._feed.close()
