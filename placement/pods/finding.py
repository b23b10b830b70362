"""A search for hosts, other providers, consumers and pods by what callers remember of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain import scope
from placement.pods.statements.pods import RESERVED
from placement.providers import scoping
from placement.providers.statements.clusters import unknown
from placement.storage import tables
from placement.storage.database import Database, Executor

_providers, _consumers, _pods, _clusters = tables.providers, tables.consumers, tables.pods, tables.clusters


class FoundProvider(NamedTuple):
    """A provider with a name or a uuid that matches the text."""

    uuid: str
    name: str
    is_root: bool
    cluster: str | None


class FoundConsumer(NamedTuple):
    """A consumer with a uuid, project or user that matches the text."""

    uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None


class FoundPod(NamedTuple):
    """A pod with a name or a uid that matches the text; `node` is None if it has no place."""

    cluster: str
    namespace: str
    name: str
    node: str | None


def providers(connection: Executor, text: str, cluster: str | None, most: int) -> list[FoundProvider]:
    """Return providers with the text in their name, or at the start of their uuid; roots first, by name."""
    is_root = _providers.c.parent_provider_id.is_(None)
    statement = (
        sa.select(_providers.c.uuid, _providers.c.name, is_root, _clusters.c.name)
        .outerjoin(_clusters, _clusters.c.id == _providers.c.cluster_id)
        .where(sa.or_(_contains(_providers.c.name, text), _begins(_providers.c.uuid, text)))
        .order_by(is_root.desc(), _providers.c.name)
        .limit(most)
    )
    if cluster is not None:
        statement = statement.where(_clusters.c.name == cluster)
    return [FoundProvider(row[0], row[1], bool(row[2]), row[3]) for row in connection.execute(statement)]


def consumers(connection: Executor, text: str, cluster: str | None, most: int) -> list[FoundConsumer]:
    """Return consumers with the text at the start of their uuid, or in their project or user, by uuid."""
    project, user = tables.projects.c.external_id, tables.users.c.external_id
    statement = (
        sa.select(_consumers.c.uuid, project, user, tables.consumer_types.c.name)
        .select_from(_consumers)
        .join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
        .join(tables.users, tables.users.c.id == _consumers.c.user_id)
        .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
        .where(sa.or_(_begins(_consumers.c.uuid, text), _contains(project, text), _contains(user, text)))
        .order_by(_consumers.c.uuid)
        .limit(most)
    )
    if cluster is not None:
        statement = statement.join(_clusters, _clusters.c.id == _consumers.c.cluster_id)
        statement = statement.where(_clusters.c.name == cluster)
    return [FoundConsumer(*row) for row in connection.execute(statement)]


def pods(connection: Executor, text: str, cluster: str | None, most: int) -> list[FoundPod]:
    """Return pods with the text in `namespace/name` or at the start of their uid, by cluster and name."""
    full_name = _pods.c.namespace + "/" + _pods.c.name
    statement = (
        sa.select(_clusters.c.name, _pods.c.namespace, _pods.c.name, tables.nodes.c.name)
        .select_from(_pods)
        .join(_clusters, _clusters.c.id == _pods.c.cluster_id)
        .outerjoin(tables.nodes, tables.nodes.c.id == _pods.c.node_id)
        .where(_pods.c.namespace != RESERVED)
        .where(sa.or_(_contains(full_name, text), _begins(_pods.c.uid, text)))
        .order_by(_clusters.c.name, full_name)
        .limit(most)
    )
    if cluster is not None:
        statement = statement.where(_clusters.c.name == cluster)
    return [FoundPod(*row) for row in connection.execute(statement)]


def _contains(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(text.lower(), autoescape=True)


def _begins(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return column.startswith(text.lower(), autoescape=True)


class Finder:
    """A use case that looks in names, uuids, projects and users, whatever their case."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def providers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundProvider]:
        """Return providers by a part of their names or the beginning of their uuids."""
        _check(cluster)
        with self._database.read() as connection:
            return providers(connection, text, cluster, most)

    def consumers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundConsumer]:
        """Return consumers by the beginning of their uuids, or a part of their project or user."""
        _check(cluster)
        with self._database.read() as connection:
            return consumers(connection, text, cluster, most)

    def pods(self, text: str, cluster: str | None, most: int) -> Sequence[FoundPod]:
        """Return pods by a part of `namespace/name` or the beginning of their uids."""
        _check(cluster)
        with self._database.read() as connection:
            return pods(connection, text, cluster, most)


def _check(cluster: str | None) -> None:
    if cluster is None:
        scoping.require_everything()
    elif not scope.admits(cluster):
        raise unknown(cluster)
