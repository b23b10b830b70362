"""The names in the database that are written almost like an unknown one, for suggestions in errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.errors import NameKind, NamesOf
from placement.engine.domain.identifiers import near, near_hosts
from placement.pods.store.statements import RESERVED
from placement.storage import tables
from placement.storage.database import Database

_clusters, _nodes, _pods, _providers = tables.clusters, tables.nodes, tables.pods, tables.providers
_aggregates = tables.aggregates
# Comparing a word with more names would take longer than the request that failed.
_MOST_COMPARED = 2000
_SHORTEST_BEGINNING = 2
_MOST_NAMES = 3
# The policy rule of the list that has the names of a kind.
_LISTS = {
    NameKind.CLUSTER: "placement:clusters:list",
    NameKind.NODE: "placement:clusters:nodes:list",
    NameKind.POD: "placement:clusters:pods:list",
    NameKind.RESERVATION: "placement:clusters:reservations:list",
    NameKind.HOST: "placement:resource_providers:list",
    NameKind.RESOURCE_CLASS: "placement:resource_classes:list",
    NameKind.TRAIT: "placement:traits:list",
    NameKind.AGGREGATE: "placement:aggregates:list",
}


# Bound callers get no suggestions of these, which may be of other clusters.
_OF_ALL_CLUSTERS = (NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE)


class NamesInDatabase:
    """The names of clusters, nodes, pods, reservations, hosts, aggregates, resource classes and traits.

    `passes` says whether the caller passes a policy rule for a target: names that it may not list are none.
    """

    def __init__(self, database: Database, passes: Callable[[str, Mapping[str, str]], bool]) -> None:
        self._database = database
        self._passes = passes

    def like(self, names: NamesOf, word: str) -> list[str]:
        """Return the names that are written almost like the word; of pods it is the name that counts."""
        if not self._may_be_listed(names):
            return []
        if names.kind is NameKind.POD:
            namespace, _, name = word.rpartition("/")
            return self._pods_like(names.cluster, namespace, name)
        compared = self._compared(_named(names), word)
        is_host = names.kind in (NameKind.HOST, NameKind.NODE)
        return near_hosts(word, compared) if is_host else near(word, compared)

    def _may_be_listed(self, names: NamesOf) -> bool:
        visible = request_scope.visible_clusters()
        clusters = {names.cluster} if visible is None or names.cluster is not None else visible
        targets = [{} if each is None else {"cluster": each} for each in clusters]
        is_of_all = names.kind in _OF_ALL_CLUSTERS and visible is not None
        return not is_of_all and all(self._passes(_LISTS[names.kind], target) for target in targets)

    def _pods_like(self, cluster: str | None, namespace: str, name: str) -> list[str]:
        """Return full names: of pods of the namespace with a name alike, else with this name elsewhere."""
        here = _of_cluster(_pods, cluster).where(_pods.c.namespace == namespace)
        if found := near(name, self._compared(here, name)):
            return [f"{namespace}/{each}" for each in found]
        full_name = (_pods.c.namespace + "/" + _pods.c.name).label("name")
        elsewhere = sa.select(full_name).join(_clusters, _clusters.c.id == _pods.c.cluster_id)
        elsewhere = elsewhere.where(_clusters.c.name == cluster, _pods.c.name == name)
        return self._read(elsewhere.order_by(full_name).limit(_MOST_NAMES))

    def _compared(self, statement: sa.Select[str], word: str) -> list[str]:
        """Return some names, first the ones that begin most like the word."""
        (column,) = statement.selected_columns
        least = min(_SHORTEST_BEGINNING, len(word))
        beginnings = [word[:length].lower() for length in range(len(word), least - 1, -1)]
        alike = sa.case(
            *(
                (sa.func.lower(column).startswith(each, autoescape=True), rank)
                for rank, each in enumerate(beginnings)
            ),
            else_=len(beginnings),
        )
        visible = request_scope.visible_clusters()
        if visible is not None:
            statement = statement.where(_clusters.c.name.in_(sorted(visible)))
        return self._read(statement.order_by(alike, column).limit(_MOST_COMPARED))

    def _read(self, statement: sa.Select[str]) -> list[str]:
        with self._database.read() as connection:
            return list(connection.execute(statement).scalars())


def _named(names: NamesOf) -> sa.Select[str]:
    """Return the statement for all names of a kind."""
    match names.kind:
        case NameKind.CLUSTER:
            return sa.select(_clusters.c.name)
        case NameKind.NODE:
            return _of_cluster(_nodes, names.cluster)
        case NameKind.RESERVATION:
            return _of_cluster(_pods, names.cluster).where(_pods.c.namespace == RESERVED)
        case NameKind.HOST:
            roots = sa.select(_providers.c.name).where(_providers.c.parent_provider_id.is_(None))
            return roots.outerjoin(_clusters, _clusters.c.id == _providers.c.cluster_id)
        case NameKind.AGGREGATE:
            name = sa.func.coalesce(_clusters.c.name, _aggregates.c.name).label("name")
            of_clusters = _aggregates.outerjoin(_clusters, _clusters.c.aggregate_id == _aggregates.c.id)
            return sa.select(name).select_from(of_clusters).where(name.is_not(None))
        case NameKind.RESOURCE_CLASS:
            return sa.select(tables.resource_classes.c.name)
        case _:
            return sa.select(tables.traits.c.name)


def _of_cluster(table: sa.Table, cluster: str | None) -> sa.Select[str]:
    of_cluster = sa.select(table.c.name).join(_clusters, _clusters.c.id == table.c.cluster_id)
    return of_cluster.where(_clusters.c.name == cluster)
