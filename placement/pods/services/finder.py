"""A search for hosts, other providers, consumers and pods by parts of their names and uuids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.pods.store.statements import RESERVED
from placement.providers.statements.clusters import unknown
from placement.storage import tables
from placement.storage.database import Database

_providers, _consumers, _pods, _clusters = tables.providers, tables.consumers, tables.pods, tables.clusters
_roots = _providers.alias("roots")


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


def _contains(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(text.lower(), autoescape=True)


def _begins(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return column.startswith(text.lower(), autoescape=True)


class FoundProvider(NamedTuple):
    """A provider with a name or a uuid that matches the text, and the host that it is a part of, or is."""

    uuid: str
    name: str
    cluster: str | None
    host_uuid: str
    host_name: str

    @property
    def is_root(self) -> bool:
        """Whether it is the host itself."""
        return self.uuid == self.host_uuid


class Finder:
    """A use case that looks in names, uuids, projects and users, whatever their case."""

    for_bound_callers = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def providers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundProvider]:
        """Return providers by a part of their names or the beginning of their uuids; roots first, by name.

        Of a root that is found its parts, which have its name in theirs, are left out.
        """
        is_root = _providers.c.parent_provider_id.is_(None)
        found, with_root = (
            sa.or_(_contains(each.c.name, text), _begins(each.c.uuid, text)) for each in (_providers, _roots)
        )
        statement = (
            sa.select(*_providers.c["uuid", "name"], _clusters.c.name, *_roots.c["uuid", "name"])
            .join(_roots, _roots.c.id == _providers.c.root_provider_id)
            .outerjoin(_clusters, _clusters.c.id == _providers.c.cluster_id)
            .where(found, sa.or_(is_root, sa.not_(with_root)))
            .order_by(is_root.desc(), _providers.c.name)
        )
        return [FoundProvider(*row) for row in self._found(statement, cluster, most)]

    def consumers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundConsumer]:
        """Return consumers by the beginning of their uuids, or a part of their project or user; by uuid."""
        project, user = tables.projects.c.external_id, tables.users.c.external_id
        statement = (
            sa.select(_consumers.c.uuid, project, user, tables.consumer_types.c.name)
            .select_from(_consumers)
            .join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
            .join(tables.users, tables.users.c.id == _consumers.c.user_id)
            .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
            .where(sa.or_(_begins(_consumers.c.uuid, text), _contains(project, text), _contains(user, text)))
            .order_by(_consumers.c.uuid)
        )
        if cluster is not None:
            statement = statement.join(_clusters, _clusters.c.id == _consumers.c.cluster_id)
        return [FoundConsumer(*row) for row in self._found(statement, cluster, most)]

    def pods(self, text: str, cluster: str | None, most: int) -> Sequence[FoundPod]:
        """Return pods by a part of `namespace/name` or the beginning of their uids; by cluster and name."""
        full_name = _pods.c.namespace + "/" + _pods.c.name
        statement = (
            sa.select(_clusters.c.name, _pods.c.namespace, _pods.c.name, tables.nodes.c.name)
            .select_from(_pods)
            .join(_clusters, _clusters.c.id == _pods.c.cluster_id)
            .outerjoin(tables.nodes, tables.nodes.c.id == _pods.c.node_id)
            .where(_pods.c.namespace != RESERVED)
            .where(sa.or_(_contains(full_name, text), _begins(_pods.c.uid, text)))
            .order_by(_clusters.c.name, full_name)
        )
        return [FoundPod(*row) for row in self._found(statement, cluster, most)]

    def names_of_pods(self, uids: Collection[str]) -> Mapping[str, str]:
        """Return `namespace/name` of the pods, and of reservations, with these uids."""
        statement = sa.select(*_pods.c["uid", "namespace", "name"]).where(_pods.c.uid.in_(uids))
        with self._database.read() as connection:
            rows = connection.execute(statement).all() if uids else ()
        return {
            uid: f"{'reservation ' if namespace == RESERVED else f'{namespace}/'}{name}"
            for uid, namespace, name in rows
        }

    def _found(self, statement: Any, cluster: str | None, most: int) -> Sequence[Any]:
        """Return some rows, of one cluster if it is given and may be seen. Raises NotFound, Forbidden."""
        if cluster is None:
            request_scope.require_everything()
        elif not request_scope.admits(cluster):
            raise unknown(cluster)
        else:
            statement = statement.where(_clusters.c.name == cluster)
        with self._database.read() as connection:
            return connection.execute(statement.limit(most)).all()
