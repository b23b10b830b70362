"""All tables. Names stay close to OpenStack Placement's, so that importing its database is a copy."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

# Ids of a table to which rows are added for good; SQLite counts by itself for plain integers only.
LONG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Revision(sa.types.UserDefinedType[int]):
    """The stamp of the transaction that last touched a row.

    PostgreSQL: the writer's 64-bit transaction id (xid8), so that readers can tell what became visible
    since a snapshot whatever the commit order. SQLite: a counter that serial writers increment.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT"


@compiles(Revision, "postgresql")
def _xid8(_revision: Revision, _compiler: Any, **_: Any) -> str:
    return "xid8"


# Conditions that are written differently for each database.


class IsSelected(FunctionElement[bool]):
    """A condition that a column is one of the ids of a query, which are few and found first.

    PostgreSQL chooses which table to begin with. A plan from when one of them was small begins with all
    of its rows, however many these are by now. An array is there before any row of the others is read.
    """

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, column: sa.ColumnElement[int], ids: sa.Select[tuple[int]]) -> None:
        super().__init__(column, ids.scalar_subquery())


@compiles(IsSelected)
def _is_in(is_selected: IsSelected, compiler: Any, **options: Any) -> str:
    column, ids = (compiler.process(each, **options) for each in is_selected.clauses)
    return f"{column} IN {ids}"


@compiles(IsSelected, "postgresql")
def _is_any(is_selected: IsSelected, compiler: Any, **options: Any) -> str:
    column, ids = (compiler.process(each, **options) for each in is_selected.clauses)
    return f"{column} = ANY (ARRAY{ids})"


class TextMember(FunctionElement[str]):
    """The text of a member of a JSON column by its path; none in a document that the database cannot read.

    So a row that is not JSON, or has half a character in a text, does not make a statement about others fail.
    """

    inherit_cache = True
    type = sa.String()

    def __init__(self, column: sa.ColumnElement[Any], *path: str) -> None:
        super().__init__(column, *(sa.literal_column(f"'{name}'") for name in path))


@compiles(TextMember)
def _text_if_valid(member: TextMember, compiler: Any, **options: Any) -> str:
    column, *names = (compiler.process(each, **options) for each in member.clauses)
    path = "." + ".".join(name.strip("'") for name in names)
    return f"CAST(CASE WHEN json_valid({column}) THEN json_extract({column}, '${path}') END AS TEXT)"


@compiles(TextMember, "postgresql")
def _text_if_whole(member: TextMember, compiler: Any, **options: Any) -> str:
    column, *names = (compiler.process(each, **options) for each in member.clauses)
    # What is written has escapes of control characters and of nothing else; former releases escaped more.
    odd = f"{column}::text ~ '{_ODD_ESCAPES}'"
    objects = f"json_typeof({column}) <> 'object'"
    path = ",".join(name.strip("'") for name in names)
    return f"CASE WHEN {odd} OR {objects} THEN NULL ELSE {column} #>> '{{{path}}}' END"


# NUL, a first half of a character without the second, and a second without the first.
_ODD_ESCAPES = (
    r"\\u(0000|[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]))"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _times() -> tuple[sa.Column[Any], sa.Column[Any]]:
    """Return columns of creation and last change, UTC without a zone."""
    return sa.Column("created_at", sa.DateTime), sa.Column("updated_at", sa.DateTime)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True)


def _reference(
    name: str, target: str, *, nullable: bool = False, index: bool = True, **options: Any
) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, sa.ForeignKey(target), nullable=nullable, index=index, **options)


def _named(table: str, column: str, type_: sa.String, *others: sa.Column[Any], **options: Any) -> sa.Table:
    """Return a table of things that have little more than a name, which is unique."""
    name = sa.Column(column, type_, nullable=False, unique=True)
    return sa.Table(table, metadata, _id(), name, *_times(), *others, **options)


clusters = sa.Table(
    "clusters",
    metadata,
    _id(),
    sa.Column("name", sa.Unicode(253), nullable=False, unique=True),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    _reference("aggregate_id", "placement_aggregates.id", index=False),
    sa.Column("settings", sa.JSON, nullable=False),
    # How many pods with required anti-affinity have come.
    sa.Column("rules_generation", sa.Integer, nullable=False, server_default="0"),
    *_times(),
)

resource_classes = sa.Table(
    "resource_classes",
    metadata,
    _id(),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    *_times(),
    # True for a class that an import of a node made; it goes when no inventory uses it any more.
    sa.Column("made_by_import", sa.Boolean),
    sqlite_autoincrement=True,
)

# As with classes: a trait that an import made goes when no provider carries it any more.
_marked = sa.Column("made_by_import", sa.Boolean)
traits = _named("traits", "name", sa.String(255), _marked, sqlite_autoincrement=True)
# The name is for people; several may have the same.
aggregates = _named("placement_aggregates", "uuid", sa.String(36), sa.Column("name", sa.Unicode(255)))
providers = sa.Table(
    "resource_providers",
    metadata,
    _id(),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    # The API allows 200 characters; names of imported cores carry cluster and node name in front.
    sa.Column("name", sa.Unicode(600), nullable=False, unique=True),
    sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
    _reference("root_provider_id", "resource_providers.id", nullable=True),
    _reference("parent_provider_id", "resource_providers.id", nullable=True),
    _reference("cluster_id", "clusters.id", nullable=True),
    sa.Column("revision", Revision, nullable=False, index=True),
    *_times(),
    # These separate the stamps of claims, which change nothing but use (CONTENT).
    sa.Column("content_revision", Revision),
    sa.Column("usage_revision", Revision),
    sqlite_autoincrement=True,
)

inventories = sa.Table(
    "inventories",
    metadata,
    _id(),
    _reference("resource_provider_id", "resource_providers.id", index=False),
    _reference("resource_class_id", "resource_classes.id"),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("reserved", sa.Integer, nullable=False),
    sa.Column("min_unit", sa.Integer, nullable=False),
    sa.Column("max_unit", sa.Integer, nullable=False),
    sa.Column("step_size", sa.Integer, nullable=False),
    sa.Column("allocation_ratio", sa.Float, nullable=False),
    # The sum of the allocations of this row, kept in the transaction that writes them.
    sa.Column("used", sa.BigInteger, nullable=False, server_default="0"),
    *_times(),
    sa.UniqueConstraint("resource_provider_id", "resource_class_id"),
)

provider_traits = sa.Table(
    "resource_provider_traits",
    metadata,
    _reference("trait_id", "traits.id", primary_key=True, index=False),
    _reference("resource_provider_id", "resource_providers.id", primary_key=True),
    *_times(),
)

provider_aggregates = sa.Table(
    "resource_provider_aggregates",
    metadata,
    _reference("resource_provider_id", "resource_providers.id", primary_key=True, index=False),
    _reference("aggregate_id", "placement_aggregates.id", primary_key=True),
    *_times(),
)

projects = _named("projects", "external_id", sa.Unicode(255))
users = _named("users", "external_id", sa.Unicode(255))
consumer_types = _named("consumer_types", "name", sa.String(255))

consumers = sa.Table(
    "consumers",
    metadata,
    _id(),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    _reference("project_id", "projects.id"),
    _reference("user_id", "users.id"),
    sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
    _reference("consumer_type_id", "consumer_types.id", nullable=True),
    _reference("cluster_id", "clusters.id", nullable=True),
    *_times(),
    # The dedicated CPUs of a guest that was claimed by its flavor; only shown.
    sa.Column("dedicated_cpus", sa.Text),
    # The request that it was claimed with, as domain.stored_requests writes it; plans of moves go by it.
    sa.Column("request", sa.Text),
    # The name of the group that it was claimed into, if any.
    sa.Column("group_name", sa.String(255)),
    sa.Index("ix_consumers_group_name", "group_name"),
)

# A row for each group that a consumer was ever claimed into; counting or adding its consumers locks it.
consumer_groups = _named("consumer_groups", "name", sa.String(255))

allocations = sa.Table(
    "allocations",
    metadata,
    _id(),
    _reference("resource_provider_id", "resource_providers.id", index=False),
    sa.Column("consumer_id", sa.String(36), sa.ForeignKey("consumers.uuid"), nullable=False),
    _reference("resource_class_id", "resource_classes.id", index=False),
    sa.Column("used", sa.BigInteger, nullable=False),
    *_times(),
    sa.UniqueConstraint("consumer_id", "resource_provider_id", "resource_class_id"),
    sa.Index(None, "resource_provider_id", "resource_class_id"),
)

nodes = sa.Table(
    "nodes",
    metadata,
    _id(),
    _reference("cluster_id", "clusters.id", index=False),
    sa.Column("name", sa.Unicode(253), nullable=False),
    _reference("resource_provider_id", "resource_providers.id", index=False, unique=True),
    sa.Column("manifest", sa.JSON, nullable=False),
    sa.Column("topology_manifest", sa.JSON),
    *_times(),
    sa.UniqueConstraint("cluster_id", "name"),
)

pods = sa.Table(
    "pods",
    metadata,
    _id(),
    _reference("cluster_id", "clusters.id", index=False),
    _reference("node_id", "nodes.id", nullable=True),
    sa.Column("namespace", sa.Unicode(253), nullable=False),
    sa.Column("name", sa.Unicode(253), nullable=False),
    sa.Column("uid", sa.String(36), nullable=False),
    sa.Column("manifest", sa.JSON, nullable=False),
    sa.Column("status", sa.JSON),
    # The number of the form of `status`; releases that know only one form leave 1.
    sa.Column("format", sa.Integer, nullable=False, server_default="1"),
    *_times(),
    sa.UniqueConstraint("cluster_id", "namespace", "name"),
    sa.UniqueConstraint("cluster_id", "uid"),
)

logical_cpus = sa.Table(
    "logical_cpus",
    metadata,
    # The key itself refuses a second exclusive owner of a CPU.
    _reference("node_id", "nodes.id", primary_key=True, index=False),
    sa.Column("cpu", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("consumer_id", sa.String(36), sa.ForeignKey("consumers.uuid"), nullable=False, index=True),
    sa.Column("exclusive_level", sa.String(16)),
)

# What the feed reports beside stamped providers: deleted providers, and names that came or went.
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", LONG_ID, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("reference", sa.Integer, nullable=False),
    sa.Column("revision", Revision, nullable=False, index=True),
    sa.Column("created_at", sa.DateTime, nullable=False, index=True),
)

# One row, which SQLite writers increment to get their stamp; unused on PostgreSQL.
change_counter = sa.Table(
    "change_counter",
    metadata,
    _id(),
    sa.Column("value", sa.BigInteger, nullable=False),
)

# Changes and their initiators, a row per change, in its transaction. Texts are as long as they are sent.
audit_records = sa.Table(
    "audit_records",
    metadata,
    sa.Column("id", LONG_ID, primary_key=True),
    sa.Column("recorded_at", sa.DateTime, nullable=False, index=True),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("target", sa.Text(), nullable=False, index=True),
    # The consumer that it is about, if any; reports of changed consumers look for it by the stamp.
    sa.Column("consumer_id", sa.String(36)),
    sa.Column("revision", Revision, nullable=False, index=True),
    sa.Column("before", sa.Text()),
    sa.Column("after", sa.Text()),
    sa.Column("user_id", sa.Text()),
    sa.Column("project_id", sa.Text()),
    sa.Column("roles", sa.Text()),
    sa.Column("request_id", sa.String(64), index=True),
    sa.Column("global_request_id", sa.String(64)),
    sa.Column("address", sa.Text()),
)

# How much was in use, for a day (providers.use_history).
use_samples = sa.Table(
    "use_samples",
    metadata,
    # Seconds since 1970, the beginning of the half hour.
    sa.Column("taken_at", sa.BigInteger, primary_key=True, autoincrement=False),
    # The storage id of the first host in it; -1 for the sums over groups of hosts.
    sa.Column("block", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# The callers that are signed in to the pages (placement.sessions).
sessions = sa.Table(
    "sessions",
    metadata,
    # The SHA-256 of what the cookie holds.
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.Unicode(255), nullable=False, index=True),
    # Half of the token; the cookie has the other.
    sa.Column("half", sa.LargeBinary, nullable=False),
    sa.Column("expires_at", sa.DateTime, nullable=False, index=True),
)


# SQL for what may have changed of a provider, and for the fit of a claim.
#
# Every write stamps `revision`. A claim changes use only, and marks this: it stamps `usage_revision`, too,
# and keeps in `content_revision` the stamp of the last write without this mark. So a writer of
# the previous release only stamps. A transaction that changes inventories, traits or aggregates after a claim
# clears `usage_revision`.


CONTENT = (
    "CASE WHEN resource_providers.usage_revision = resource_providers.revision"
    " THEN resource_providers.content_revision ELSE resource_providers.revision END"
)
"""The stamp of the last write that may have changed more than use and generation of a provider.

Two states of a provider with equal stamps, within one history of writes, differ in nothing else. Only
equality means something: writers may commit in another order than they are stamped in.
"""


# The conditions that a claim fits an inventory: the one place where a claim is decided.
#
# The statements that claim join a table `wanted` to `inventories`. A row of it says how the use of one
# inventory changes: `delta` is the net change. `least`, `most` and `divisor` are the smallest and the largest
# new amount and the greatest common divisor, all 0 if there is no new amount. Each amount must respect the
# units: a step divides all amounts if it divides their greatest common divisor.


_UNITS = "wanted.least >= min_unit AND wanted.most <= max_unit AND wanted.divisor % step_size = 0"
_ROOM = "used + wanted.delta <= (total - reserved) * allocation_ratio"
# For a rise by new amounts; conditions that always hold are left out, as they would change the plan.
RISE_FITS = f"{_UNITS} AND {_ROOM}"
# For any change. One that does not raise the use is never refused for capacity (Placement API, when an
# allocation fits).
CHANGE_FITS = f"(wanted.most = 0 OR ({_UNITS})) AND (wanted.delta <= 0 OR {_ROOM})"
