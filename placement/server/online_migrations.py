"""The completion of rows that older versions left, while the service runs, and counts of such rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from oslo_config import cfg

from placement.engine.domain.audit import Action, TargetKind
from placement.providers.statements import names
from placement.storage import tables
from placement.storage.database import Database, Executor, Transaction, run_in_transaction

SET_ROOTS, CREATE_CONSUMERS = "set_root_provider_ids", "create_incomplete_consumers"


class OnlineMigrations:
    """The migrations, which complete rows in batches, and find none once all are complete."""

    def __init__(self, database: Database, owner: MigrationOwner) -> None:
        self._database = database
        # By name: what counts the rows, and what completes some of them.
        self._all: dict[str, tuple[Callable[[Executor], int], Callable[..., int]]] = {
            SET_ROOTS: (_count_rootless, _set_roots),
            CREATE_CONSUMERS: (_count_orphans, partial(create_consumers, owner=owner)),
        }

    def count(self, name: str) -> int:
        """Return how many rows a migration has to complete. Raises Unavailable."""
        with self._database.read() as connection:
            return self._all[name][0](connection)

    def run(self, most: int) -> list[MigrationBatch]:
        """Run one batch of at most `most` rows, over all migrations together. Raises Unavailable."""
        batches: list[MigrationBatch] = []
        for name, (_, complete) in self._all.items():
            found = min(self.count(name), most - sum(batch.completed for batch in batches))
            work = partial(self._complete, name, partial(complete, most=found))
            batches.append(
                MigrationBatch(name, found, run_in_transaction(self._database, work) if found else 0)
            )
        return batches

    def _complete(self, name: str, complete: Callable[[Transaction], int], transaction: Transaction) -> int:
        """Complete a batch and return how many rows that were; one audit record covers all of them."""
        completed = complete(transaction)
        if completed:
            transaction.record(Action.UPDATE, TargetKind.DATABASE, name, after={"completed": completed})
        return completed


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """The numbers of rows that one migration found in one go, and completed."""

    name: str
    found: int
    completed: int


@dataclass(frozen=True, slots=True)
class MigrationOwner:
    """The project and the user that consumers without a record get."""

    project_id: str
    user_id: str


def owner_of(settings: cfg.ConfigOpts) -> MigrationOwner:
    """Return the configured owner."""
    options = settings.placement
    return MigrationOwner(options.incomplete_consumer_project_id, options.incomplete_consumer_user_id)


_providers = tables.providers
_parent = tables.providers.alias("parent")
_allocations = tables.allocations
_consumers = tables.consumers

_rootless = (
    sa.select(_providers.c.id, sa.func.coalesce(_parent.c.root_provider_id, _providers.c.id).label("root_id"))
    .select_from(_providers)
    .outerjoin(_parent, _parent.c.id == _providers.c.parent_provider_id)
    .where(
        _providers.c.root_provider_id.is_(None),
        sa.or_(_providers.c.parent_provider_id.is_(None), _parent.c.root_provider_id.is_not(None)),
    )
    .order_by(_providers.c.id)
)
_orphans = (
    sa.select(_allocations.c.consumer_id)
    .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
    .where(_consumers.c.id.is_(None))
    .distinct()
    .order_by(_allocations.c.consumer_id)
)
_cluster_of = sa.union(
    sa.select(tables.nodes.c.cluster_id)
    .join(tables.logical_cpus, tables.logical_cpus.c.node_id == tables.nodes.c.id)
    .where(tables.logical_cpus.c.consumer_id == sa.bindparam("uuid")),
    sa.select(tables.pods.c.cluster_id).where(
        tables.TextMember(tables.pods.c.status, "consumer") == sa.bindparam("uuid")
    ),
).limit(1)


def _count_rootless(connection: Executor) -> int:
    statement = sa.select(sa.func.count()).where(_providers.c.root_provider_id.is_(None))
    return int(connection.execute(statement).scalar_one())


def _set_roots(transaction: Transaction, most: int) -> int:
    """Give up to `most` providers the id of their root, roots before children; return how many got one."""
    found = transaction.execute(_rootless.limit(most)).all()
    for id_, root_id in found:
        transaction.execute(
            sa.update(_providers)
            .where(_providers.c.id == id_)
            .values(root_provider_id=root_id, revision=transaction.stamp)
        )
    return len(found)


def _count_orphans(connection: Executor) -> int:
    """Return how many consumers have allocations but no record."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(_orphans.subquery())).scalar_one())


def create_consumers(transaction: Transaction, most: int, owner: MigrationOwner) -> int:
    """Give up to `most` such consumers a record with this owner; return how many got one.

    A consumer that owns CPUs, or is recorded as a pod, belongs to the cluster of these CPUs or of the pod.
    """
    missing = list(transaction.execute(_orphans.limit(most)).scalars())
    if not missing:
        return 0
    ids = []
    for table, name in ((tables.projects, owner.project_id), (tables.users, owner.user_id)):
        names.insert_ignoring_known(transaction, table, "external_id", [name])
        chosen = sa.select(table.c.id).where(table.c.external_id == name)
        ids.append(transaction.execute(chosen).scalar_one())
    rows = [
        {
            "uuid": uuid,
            "project_id": ids[0],
            "user_id": ids[1],
            "generation": 0,
            "created_at": transaction.now,
            "cluster_id": transaction.execute(_cluster_of, {"uuid": uuid}).scalar(),
        }
        for uuid in missing
    ]
    transaction.execute(transaction.insert_or_ignore(_consumers), rows)
    return len(missing)
