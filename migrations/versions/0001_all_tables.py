"""All tables

Revision: 0001, follows None
"""

import sqlalchemy as sa
from alembic import op

from placement.storage.tables import Revision

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "change_counter",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_change_counter")),
    )
    op.execute("INSERT INTO change_counter (id, value) VALUES (1, 1)")
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("reference", sa.Integer(), nullable=False),
        sa.Column("revision", Revision(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
    )
    op.create_index(op.f("ix_changes_created_at"), "changes", ["created_at"], unique=False)
    op.create_index(op.f("ix_changes_revision"), "changes", ["revision"], unique=False)

    op.create_table(
        "consumer_types",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consumer_types")),
        sa.UniqueConstraint("name", name=op.f("uq_consumer_types_name")),
    )
    op.create_table(
        "placement_aggregates",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_placement_aggregates")),
        sa.UniqueConstraint("uuid", name=op.f("uq_placement_aggregates_uuid")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("external_id", sa.Unicode(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("external_id", name=op.f("uq_projects_external_id")),
    )
    op.create_table(
        "resource_classes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_resource_classes")),
        sa.UniqueConstraint("name", name=op.f("uq_resource_classes_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "traits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_traits")),
        sa.UniqueConstraint("name", name=op.f("uq_traits_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("external_id", sa.Unicode(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("external_id", name=op.f("uq_users_external_id")),
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Unicode(length=253), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("aggregate_id", sa.Integer(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["aggregate_id"], ["placement_aggregates.id"], name=op.f("fk_clusters_aggregate_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("name", name=op.f("uq_clusters_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_clusters_uuid")),
    )
    op.create_table(
        "consumers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("consumer_type_id", sa.Integer(), nullable=True),
        sa.Column("cluster_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_consumers_cluster_id")),
        sa.ForeignKeyConstraint(
            ["consumer_type_id"], ["consumer_types.id"], name=op.f("fk_consumers_consumer_type_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_consumers_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_consumers_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consumers")),
        sa.UniqueConstraint("uuid", name=op.f("uq_consumers_uuid")),
    )
    op.create_index(op.f("ix_consumers_cluster_id"), "consumers", ["cluster_id"], unique=False)
    op.create_index(op.f("ix_consumers_consumer_type_id"), "consumers", ["consumer_type_id"], unique=False)
    op.create_index(op.f("ix_consumers_project_id"), "consumers", ["project_id"], unique=False)
    op.create_index(op.f("ix_consumers_user_id"), "consumers", ["user_id"], unique=False)

    op.create_table(
        "resource_providers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Unicode(length=600), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("root_provider_id", sa.Integer(), nullable=True),
        sa.Column("parent_provider_id", sa.Integer(), nullable=True),
        sa.Column("cluster_id", sa.Integer(), nullable=True),
        sa.Column("revision", Revision(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_resource_providers_cluster_id")
        ),
        sa.ForeignKeyConstraint(
            ["parent_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_resource_providers_parent_provider_id"),
        ),
        sa.ForeignKeyConstraint(
            ["root_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_resource_providers_root_provider_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_resource_providers")),
        sa.UniqueConstraint("name", name=op.f("uq_resource_providers_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_resource_providers_uuid")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_resource_providers_cluster_id"), "resource_providers", ["cluster_id"], unique=False
    )
    op.create_index(
        op.f("ix_resource_providers_parent_provider_id"),
        "resource_providers",
        ["parent_provider_id"],
        unique=False,
    )
    op.create_index(op.f("ix_resource_providers_revision"), "resource_providers", ["revision"], unique=False)
    op.create_index(
        op.f("ix_resource_providers_root_provider_id"),
        "resource_providers",
        ["root_provider_id"],
        unique=False,
    )

    op.create_table(
        "allocations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("resource_provider_id", sa.Integer(), nullable=False),
        sa.Column("consumer_id", sa.String(length=36), nullable=False),
        sa.Column("resource_class_id", sa.Integer(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["consumer_id"], ["consumers.uuid"], name=op.f("fk_allocations_consumer_id")),
        sa.ForeignKeyConstraint(
            ["resource_class_id"], ["resource_classes.id"], name=op.f("fk_allocations_resource_class_id")
        ),
        sa.ForeignKeyConstraint(
            ["resource_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_allocations_resource_provider_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
        sa.UniqueConstraint(
            "consumer_id",
            "resource_provider_id",
            "resource_class_id",
            name=op.f("uq_allocations_consumer_id_resource_provider_id_resource_class_id"),
        ),
    )
    op.create_index(
        op.f("ix_allocations_resource_provider_id_resource_class_id"),
        "allocations",
        ["resource_provider_id", "resource_class_id"],
        unique=False,
    )

    op.create_table(
        "inventories",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("resource_provider_id", sa.Integer(), nullable=False),
        sa.Column("resource_class_id", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Integer(), nullable=False),
        sa.Column("min_unit", sa.Integer(), nullable=False),
        sa.Column("max_unit", sa.Integer(), nullable=False),
        sa.Column("step_size", sa.Integer(), nullable=False),
        sa.Column("allocation_ratio", sa.Float(), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_class_id"], ["resource_classes.id"], name=op.f("fk_inventories_resource_class_id")
        ),
        sa.ForeignKeyConstraint(
            ["resource_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_inventories_resource_provider_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inventories")),
        sa.UniqueConstraint(
            "resource_provider_id",
            "resource_class_id",
            name=op.f("uq_inventories_resource_provider_id_resource_class_id"),
        ),
    )
    op.create_index(
        op.f("ix_inventories_resource_class_id"), "inventories", ["resource_class_id"], unique=False
    )

    op.create_table(
        "nodes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Unicode(length=253), nullable=False),
        sa.Column("resource_provider_id", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("topology_manifest", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_nodes_cluster_id")),
        sa.ForeignKeyConstraint(
            ["resource_provider_id"], ["resource_providers.id"], name=op.f("fk_nodes_resource_provider_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("cluster_id", "name", name=op.f("uq_nodes_cluster_id_name")),
        sa.UniqueConstraint("resource_provider_id", name=op.f("uq_nodes_resource_provider_id")),
    )
    op.create_table(
        "resource_provider_aggregates",
        sa.Column("resource_provider_id", sa.Integer(), nullable=False),
        sa.Column("aggregate_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["aggregate_id"],
            ["placement_aggregates.id"],
            name=op.f("fk_resource_provider_aggregates_aggregate_id"),
        ),
        sa.ForeignKeyConstraint(
            ["resource_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_resource_provider_aggregates_resource_provider_id"),
        ),
        sa.PrimaryKeyConstraint(
            "resource_provider_id", "aggregate_id", name=op.f("pk_resource_provider_aggregates")
        ),
    )
    op.create_index(
        op.f("ix_resource_provider_aggregates_aggregate_id"),
        "resource_provider_aggregates",
        ["aggregate_id"],
        unique=False,
    )

    op.create_table(
        "resource_provider_traits",
        sa.Column("trait_id", sa.Integer(), nullable=False),
        sa.Column("resource_provider_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_provider_id"],
            ["resource_providers.id"],
            name=op.f("fk_resource_provider_traits_resource_provider_id"),
        ),
        sa.ForeignKeyConstraint(
            ["trait_id"], ["traits.id"], name=op.f("fk_resource_provider_traits_trait_id")
        ),
        sa.PrimaryKeyConstraint("trait_id", "resource_provider_id", name=op.f("pk_resource_provider_traits")),
    )
    op.create_index(
        op.f("ix_resource_provider_traits_resource_provider_id"),
        "resource_provider_traits",
        ["resource_provider_id"],
        unique=False,
    )

    op.create_table(
        "logical_cpus",
        sa.Column("node_id", sa.Integer(), nullable=False),
        sa.Column("cpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("consumer_id", sa.String(length=36), nullable=False),
        sa.Column("exclusive_level", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["consumer_id"], ["consumers.uuid"], name=op.f("fk_logical_cpus_consumer_id")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_logical_cpus_node_id")),
        sa.PrimaryKeyConstraint("node_id", "cpu", name=op.f("pk_logical_cpus")),
    )
    op.create_index(op.f("ix_logical_cpus_consumer_id"), "logical_cpus", ["consumer_id"], unique=False)

    op.create_table(
        "pods",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.Integer(), nullable=True),
        sa.Column("namespace", sa.Unicode(length=253), nullable=False),
        sa.Column("name", sa.Unicode(length=253), nullable=False),
        sa.Column("uid", sa.String(length=36), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("status", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_pods_cluster_id")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_pods_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pods")),
        sa.UniqueConstraint(
            "cluster_id", "namespace", "name", name=op.f("uq_pods_cluster_id_namespace_name")
        ),
        sa.UniqueConstraint("cluster_id", "uid", name=op.f("uq_pods_cluster_id_uid")),
    )
    op.create_index(op.f("ix_pods_node_id"), "pods", ["node_id"], unique=False)


def downgrade() -> None:
    for table in (
        "pods",
        "logical_cpus",
        "resource_provider_traits",
        "resource_provider_aggregates",
        "nodes",
        "inventories",
        "allocations",
        "resource_providers",
        "consumers",
        "clusters",
        "users",
        "traits",
        "resource_classes",
        "projects",
        "placement_aggregates",
        "consumer_types",
        "changes",
        "change_counter",
    ):
        op.drop_table(table)
