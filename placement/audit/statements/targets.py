"""What an audit record can be about, by name or UUID: now, and according to the records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain.audit import TargetKind
from placement.engine.domain.errors import BadRequest, NameKind, NamesOf, RequestPlace
from placement.engine.domain.identifiers import normalize_uuid
from placement.storage import tables
from placement.storage.database import Executor

_records, _providers, _aggregates = tables.audit_records, tables.providers, tables.aggregates
_clusters, _nodes, _pods, _consumers = tables.clusters, tables.nodes, tables.pods, tables.consumers
# Former names stand in documents, which have no index: the newest records are looked through.
_LOOKED_THROUGH = 100_000
_MOST_TARGETS = 50


class AuditTarget(NamedTuple):
    """A thing that records are about: its kind, its id in the records, and its name, None if unknown."""

    kind: str
    id: str
    name: str | None


def targets_called(connection: Executor, called: str, place: RequestPlace) -> list[AuditTarget]:
    """Return all things of a name or UUID that are there now or in records, some at most, each once.

    Raises BadRequest naming the place if there are none.
    """
    uuid = normalize_uuid(called)
    present = _of_name(connection, called)
    if uuid is not None:
        present += _of_uuid(connection, uuid)
    found = {(each.kind, each.id): each for each in reversed(present)}
    for former in _recorded(connection, uuid or called, is_name=uuid is None):
        found.setdefault((former.kind, former.id), former)
    if not found:
        raise BadRequest(
            f"nothing is called {called} now, and no kept record is about it",
            place=place,
            value=called,
            known=NamesOf(NameKind.HOST),
        )
    return list(found.values())[:_MOST_TARGETS]


def _of_uuid(connection: Executor, uuid: str) -> list[AuditTarget]:
    named = (
        (TargetKind.PROVIDER, _providers.c.uuid, _providers.c.name),
        (TargetKind.AGGREGATE, _aggregates.c.uuid, _aggregates.c.name),
        (TargetKind.ALLOCATIONS, _consumers.c.uuid, sa.cast(sa.null(), sa.Text)),
    )
    parts = (
        sa.select(sa.literal(str(kind)), column, name).where(column == uuid) for kind, column, name in named
    )
    return [AuditTarget(*row) for row in connection.execute(sa.union_all(*parts))]


def _of_name(connection: Executor, called: str) -> list[AuditTarget]:
    """Return what has a name now; nodes and pods also by the name without their cluster."""
    node = _clusters.c.name + "/" + _nodes.c.name
    pod_name = _pods.c.namespace + "/" + _pods.c.name
    pod = _clusters.c.name + "/" + pod_name
    of_node = sa.select(node, node).join(_clusters, _clusters.c.id == _nodes.c.cluster_id)
    of_pod = sa.select(pod, pod).join(_clusters, _clusters.c.id == _pods.c.cluster_id)
    # With a cluster or a namespace the name itself is looked up, as it has an index.
    last = called.rpartition("/")[2]
    aggregate_name = sa.func.coalesce(_clusters.c.name, _aggregates.c.name)
    of_clusters = _aggregates.outerjoin(_clusters, _clusters.c.aggregate_id == _aggregates.c.id)
    statements: Iterable[tuple[str, sa.Select[str, str]]] = (
        (
            TargetKind.PROVIDER,
            sa.select(_providers.c.uuid, _providers.c.name).where(_providers.c.name == called),
        ),
        (
            TargetKind.AGGREGATE,
            sa.select(_aggregates.c.uuid, aggregate_name)
            .select_from(of_clusters)
            .where(aggregate_name == called),
        ),
        (
            TargetKind.CLUSTER,
            sa.select(_clusters.c.name, _clusters.c.name).where(_clusters.c.name == called),
        ),
        (
            TargetKind.NODE,
            of_node.where(_nodes.c.name == last, sa.or_(_nodes.c.name == called, node == called)),
        ),
        (
            TargetKind.POD,
            of_pod.where(
                _pods.c.name == last,
                sa.or_(_pods.c.name == called, pod_name == called, pod == called),
            ),
        ),
    )
    parts = (statement.add_columns(sa.literal(str(kind))) for kind, statement in statements)
    rows = connection.execute(sa.union_all(*parts).limit(_MOST_TARGETS))
    return [AuditTarget(kind, id_, name) for id_, name, kind in rows]


_OF_PROVIDERS = (TargetKind.PROVIDER, TargetKind.INVENTORIES, TargetKind.TRAITS, TargetKind.AGGREGATES)


def _recorded(connection: Executor, called: str, *, is_name: bool) -> list[AuditTarget]:
    """Return what records are about that have this id, or called a thing so, as providers now gone."""
    kinds = sa.select(_records.c.kind).where(_records.c.target == called).distinct()
    found = []
    for kind in connection.execute(kinds).scalars():
        of_provider = kind in _OF_PROVIDERS
        found.append(AuditTarget(TargetKind.PROVIDER if of_provider else kind, called, None))
    if is_name:
        newest = sa.select(sa.func.max(_records.c.id)).scalar_subquery()
        member = f'"name":{json.dumps(called)}'
        former = (
            sa.select(_records.c.kind, _records.c.target)
            .where(
                _records.c.id > newest - _LOOKED_THROUGH,
                _records.c.kind.in_([TargetKind.PROVIDER, TargetKind.AGGREGATE]),
                sa.or_(
                    *(
                        column.contains(member, autoescape=True)
                        for column in (_records.c.before, _records.c.after)
                    )
                ),
            )
            .distinct()
            .limit(_MOST_TARGETS)
        )
        found += [AuditTarget(kind, target, called) for kind, target in connection.execute(former)]
    return found
