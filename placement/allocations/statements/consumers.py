"""Statements on consumers, their attributes and groups, and what they hold.

Attributes are projects, users and consumer types. Callers lock the rows of providers before what is used of
their inventories changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.providers.statements import names
from placement.storage import tables
from placement.storage.database import Database, Executor, RowStatement, Transaction
from placement.storage.failures import TryAgain
from placement.storage.tables import CHANGE_FITS

_table = tables.consumers
_allocations = tables.allocations
_ATTRIBUTES = {
    "project": (tables.projects, "external_id"),
    "user": (tables.users, "external_id"),
    "type": (tables.consumer_types, "name"),
}
# About 2 MiB of names of 32 characters in each worker.
_MOST_KNOWN = 10_000

# The kind, "project", "user" or "type", and the name that callers give.
Attribute = tuple[str, str]


class AttributeRegistry:
    """A registry that inserts projects, users and consumer types at their first use; none is ever deleted.

    Registration is a transaction of its own: an attribute without consumers does no harm. The registry
    remembers that an attribute was registered, never its id, as ids may differ in a database that was
    restored: statements look ids up.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[Attribute] = set()
        database.history.forget_with(self.forget)

    def register(self, attributes: Iterable[Attribute]) -> None:
        """Insert the attributes that are not known to be in the database. Raises Unavailable."""
        # Use one set throughout: another thread may begin a new one at any time.
        known = self._known
        unknown = set(attributes) - known
        if not unknown:
            return
        with self._database.write() as transaction:
            for kind, (table, column) in _ATTRIBUTES.items():
                wanted = [name for of_kind, name in unknown if of_kind == kind]
                names.insert_ignoring_known(transaction, table, column, wanted)
        if len(known) >= _MOST_KNOWN:
            self._known = unknown
        else:
            known.update(unknown)

    def forget(self) -> None:
        """Take no attribute for registered any more."""
        self._known = set()


class Consumer(NamedTuple):
    """A consumer that holds allocations.

    `dedicated_cpus` are the dedicated CPUs of a guest, in its own numbers, if it was claimed by its flavor
    and nothing was claimed for it since.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    dedicated_cpus: str | None = None


# The columns of a Consumer.
described = (
    sa.select(
        _table.c.uuid,
        _table.c.generation,
        tables.projects.c.external_id,
        tables.users.c.external_id,
        tables.consumer_types.c.name,
        _table.c.dedicated_cpus,
    )
    .select_from(_table)
    .join(tables.projects, tables.projects.c.id == _table.c.project_id)
    .join(tables.users, tables.users.c.id == _table.c.user_id)
    .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _table.c.consumer_type_id)
)


def find(connection: Executor, uuid: str) -> Consumer | None:
    """Return the consumer with its attributes, None if it does not exist."""
    row = connection.execute(described.where(_table.c.uuid == uuid)).first()
    return Consumer(*row) if row else None


def find_all(connection: Executor, uuids: Collection[str]) -> list[tuple[Consumer, bool]]:
    """Return the consumers that exist, and whether each is a pod."""
    statement = described.add_columns(_table.c.cluster_id.is_not(None)).where(_table.c.uuid.in_(uuids))
    return [(Consumer(*row[:-1]), bool(row[-1])) for row in connection.execute(statement)]


class LockedConsumer(NamedTuple):
    """A consumer with its row locked until the transaction ends; pods have the id of their cluster."""

    generation: int
    cluster_id: int | None


def lock(transaction: Transaction, uuids: Collection[str]) -> dict[str, LockedConsumer]:
    """Lock the consumers that exist, in ascending order of uuids."""
    statement = (
        sa.select(_table.c.uuid, _table.c.generation, _table.c.cluster_id)
        .where(_table.c.uuid.in_(sorted(uuids)))
        .order_by(_table.c.uuid)
        .with_for_update()
    )
    return {row[0]: LockedConsumer(row[1], row[2]) for row in transaction.execute(statement)}


def lock_generations(transaction: Transaction, uuids: Collection[str]) -> dict[str, int]:
    """Lock the consumers that exist, and return their generations.

    Raises Conflict for a pod, because what it holds follows from the pod (Pods, Clusters).
    """
    locked = lock(transaction, uuids)
    for uuid, consumer in locked.items():
        if consumer.cluster_id is not None:
            raise pod_conflict(uuid)
    return {uuid: consumer.generation for uuid, consumer in locked.items()}


def pod_conflict(uuid: str) -> Conflict:
    """Return the error that a consumer is a pod, and claims by its pod only."""
    return Conflict(
        f"Consumer {uuid} is a pod of a cluster; its allocations change only with the pod, "
        "see /ext/v1/clusters."
    )


class ConsumerAttributes(NamedTuple):
    """The attributes a consumer shall have; type None leaves the type alone. Pods have a cluster, too."""

    uuid: str
    project: str
    user: str
    consumer_type: str | None
    cluster_id: int | None = None

    def named(self) -> set[Attribute]:
        """Return the project, the user and, if there is one, the type."""
        owner = {("project", self.project), ("user", self.user)}
        return owner if self.consumer_type is None else {*owner, ("type", self.consumer_type)}


_COLUMNS = {
    "uuid": "varchar",
    "project": "varchar",
    "person": "varchar",
    "type": "varchar",
    "cluster_id": "integer",
}
_NOW = sa.bindparam("now", type_=sa.DateTime)
# Consumers with an attribute that is not in the database are left out.
_FOUND = """
    FROM {rows}
    JOIN projects ON projects.external_id = given.project
    JOIN users ON users.external_id = given.person
    LEFT JOIN consumer_types ON consumer_types.name = given.type
   WHERE (given.type IS NULL OR consumer_types.id IS NOT NULL)
"""
_CREATE = RowStatement(
    f"""
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, generation, created_at)
    SELECT given.uuid, projects.id, users.id, consumer_types.id, given.cluster_id, 1, :now {_FOUND}
     ORDER BY given.uuid ON CONFLICT DO NOTHING RETURNING uuid
    """,
    "given",
    _COLUMNS,
    _NOW,
)
_ADVANCED = """
    UPDATE consumers SET generation = generation + 1, updated_at = :now, project_id = projects.id,
           user_id = users.id, consumer_type_id = COALESCE(consumer_types.id, consumers.consumer_type_id),
           dedicated_cpus = NULL
"""
_OF_GIVEN = f"{_FOUND} AND consumers.uuid = given.uuid"
_MOVE = RowStatement(f"{_ADVANCED} {_OF_GIVEN}", "given", _COLUMNS, _NOW)
# What they hold from now on is not known to be what they asked for.
_ADVANCE = RowStatement(f"{_ADVANCED}, request = NULL {_OF_GIVEN}", "given", _COLUMNS, _NOW)


def create(transaction: Transaction, attributes: Collection[ConsumerAttributes]) -> set[str]:
    """Insert consumers at generation 1; return the uuids that no other writer inserted first.

    Raises TryAgain if an attribute is not in the database.
    """
    if not attributes:
        return set()
    rows = sorted(attributes, key=lambda each: each.uuid)
    created = set(_CREATE.run(transaction, rows, now=transaction.now).scalars())
    if len(created) < len(rows):
        _check_registered(transaction, rows)
    return created


def advance(
    transaction: Transaction, attributes: Sequence[ConsumerAttributes], moved: Collection[str] = ()
) -> None:
    """Give existing consumers the next generation and these attributes, and forget their requests.

    Consumers in `moved` keep their requests. Raises TryAgain if an attribute is missing.
    """
    movers = [each for each in attributes if each.uuid in moved]
    others = [each for each in attributes if each.uuid not in moved]
    for statement, some in ((_MOVE, movers), (_ADVANCE, others)):
        if some and statement.run(transaction, some, now=transaction.now).rowcount < len(some):
            _check_registered(transaction, some)


def _check_registered(transaction: Transaction, attributes: Collection[ConsumerAttributes]) -> None:
    """Make all caches forget and raise TryAgain if registered attributes are missing."""
    wanted = set().union(*(each.named() for each in attributes))
    found = 0
    for kind, (table, column) in _ATTRIBUTES.items():
        of_kind = sorted(name for its_kind, name in wanted if its_kind == kind)
        count = sa.select(sa.func.count()).where(table.c[column].in_(of_kind))
        found += transaction.execute(count).scalar_one() if of_kind else 0
    if found < len(wanted):
        transaction.forget_caches()
        raise TryAgain(
            "The database does not know a project, user or type of consumers any more: it is another one."
        )


def note_dedicated_cpus(transaction: Transaction, uuid: str, generation: int, cpus: str | None) -> bool:
    """Keep the dedicated CPUs of a guest with its consumer; False if the generation has changed."""
    mine = (_table.c.uuid == uuid, _table.c.generation == generation)
    return bool(transaction.execute(sa.update(_table).where(*mine).values(dedicated_cpus=cpus)).rowcount)


_KEEP = {
    column: RowStatement(
        f"UPDATE consumers SET {column} = given.text FROM {{rows}} WHERE consumers.uuid = given.uuid",
        "given",
        {"uuid": "varchar", "text": "text"},
    )
    for column in ("request", "dedicated_cpus", "group_name")
}


def keep(transaction: Transaction, column: str, texts: Mapping[str, str]) -> None:
    """Keep texts with consumers: their `request` when claimed, `dedicated_cpus`, or `group_name`."""
    if texts:
        _KEEP[column].run(transaction, sorted(texts.items()))


def delete(transaction: Transaction, uuids: Collection[str]) -> None:
    """Remove consumers, which must be without holdings."""
    if uuids:
        transaction.execute(sa.delete(_table).where(_table.c.uuid.in_(sorted(uuids))))


def delete_idle(transaction: Transaction, uuids: Collection[str]) -> None:
    """Remove consumers without holdings and logical CPUs."""
    if uuids:
        cpus = tables.logical_cpus
        holds = sa.exists().where(_allocations.c.consumer_id == _table.c.uuid)
        owns = sa.exists().where(cpus.c.consumer_id == _table.c.uuid)
        transaction.execute(sa.delete(_table).where(_table.c.uuid.in_(sorted(uuids)), ~holds, ~owns))


# Statements on groups of consumers: their members, and their locks.
_groups = tables.consumer_groups


def members(connection: Executor, groups: Collection[str]) -> dict[str, set[str]]:
    """Return the uuids of the consumers in each of the groups that has any."""
    found: dict[str, set[str]] = defaultdict(set)
    if groups:
        columns = _table.c.group_name, _table.c.uuid
        for name, uuid in connection.execute(sa.select(*columns).where(columns[0].in_(sorted(groups)))):
            found[name].add(uuid)
    return found


def lock_groups(transaction: Transaction, groups: Collection[str]) -> None:
    """Create the groups that are new, and lock all until the transaction ends, in ascending order."""
    if groups:
        names.insert_ignoring_known(transaction, _groups, "name", groups)
        statement = sa.select(_groups.c.id).where(_groups.c.name.in_(sorted(groups))).order_by(_groups.c.name)
        transaction.execute(statement.with_for_update()).all()


def join(transaction: Transaction, groups: Mapping[str, str]) -> None:
    """Put consumers into groups, by their uuids."""
    keep(transaction, "group_name", groups)


# What consumers hold.

# The decision of a claim.
_APPLY = RowStatement(
    f"""
    UPDATE inventories SET used = used + wanted.delta
      FROM {{rows}}
     WHERE inventories.resource_provider_id = wanted.provider_id
       AND inventories.resource_class_id = wanted.class_id
       AND {CHANGE_FITS}
    RETURNING inventories.resource_provider_id, inventories.resource_class_id
    """,
    "wanted",
    {
        "provider_id": "integer",
        "class_id": "integer",
        "delta": "bigint",
        "least": "bigint",
        "most": "bigint",
        "divisor": "bigint",
    },
)


class HeldAllocation(NamedTuple):
    """One allocation by ids; `amount` in units of the class."""

    consumer_uuid: str
    provider_id: int
    class_id: int
    amount: int


def held_by(connection: Executor, consumer_uuids: Collection[str]) -> list[HeldAllocation]:
    """Return all that some consumers hold."""
    statement = sa.select(
        _allocations.c.consumer_id,
        _allocations.c.resource_provider_id,
        _allocations.c.resource_class_id,
        _allocations.c.used,
    ).where(_allocations.c.consumer_id.in_(sorted(consumer_uuids)))
    return [HeldAllocation(*row) for row in connection.execute(statement)]


class UsageChange(NamedTuple):
    """A change of the use of one inventory: see storage.tables."""

    provider_id: int
    class_id: int
    delta: int
    least: int
    most: int
    divisor: int


def apply_changes(transaction: Transaction, changes: Sequence[UsageChange]) -> set[tuple[int, int]]:
    """Raise and lower `used` where units and capacity allow; return the allowed (provider, class) ids."""
    if not changes:
        return set()
    return {(row[0], row[1]) for row in _APPLY.run(transaction, changes)}


def replace_held(
    transaction: Transaction,
    consumers_holding: Collection[str],
    new_allocations: Sequence[HeldAllocation],
    provider_ids: Collection[int] | None = None,
) -> None:
    """Delete the allocations of consumers, of all or some providers, and insert the new ones."""
    if consumers_holding and (provider_ids is None or provider_ids):
        held = sa.delete(_allocations).where(_allocations.c.consumer_id.in_(sorted(consumers_holding)))
        if provider_ids is not None:
            held = held.where(_allocations.c.resource_provider_id.in_(sorted(provider_ids)))
        transaction.execute(held)
    if new_allocations:
        rows = [
            {
                "consumer_id": each.consumer_uuid,
                "resource_provider_id": each.provider_id,
                "resource_class_id": each.class_id,
                "used": each.amount,
                "created_at": transaction.now,
            }
            for each in sorted(new_allocations)
        ]
        transaction.execute(sa.insert(_allocations), rows)
