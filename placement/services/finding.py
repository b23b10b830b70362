"""Finds hosts, other providers, consumers and pods by what people remember of them."""

from __future__ import annotations

from collections.abc import Sequence

from placement.domain import scope
from placement.services import scoping
from placement.services.clusters.cluster_lookup import unknown
from placement.storage.database import Database
from placement.storage.statements import finding
from placement.storage.statements.finding import FoundConsumer, FoundPod, FoundProvider


class Finder:
    """Looks in names, uuids, projects and users, whatever their case."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def providers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundProvider]:
        """Providers by a part of their names or the beginning of their uuids."""
        _check(cluster)
        with self._database.read() as connection:
            return finding.providers(connection, text, cluster, most)

    def consumers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundConsumer]:
        """Consumers by the beginning of their uuids, or a part of their project or user."""
        _check(cluster)
        with self._database.read() as connection:
            return finding.consumers(connection, text, cluster, most)

    def pods(self, text: str, cluster: str | None, most: int) -> Sequence[FoundPod]:
        """Pods by a part of `namespace/name` or the beginning of their uids."""
        _check(cluster)
        with self._database.read() as connection:
            return finding.pods(connection, text, cluster, most)


def _check(cluster: str | None) -> None:
    if cluster is None:
        scoping.require_everything()
    elif not scope.admits(cluster):
        raise unknown(cluster)
