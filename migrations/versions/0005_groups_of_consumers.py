"""Consumers are claimed into groups, so that later claims know who is apart from whom

Revision: 0005, follows 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "consumer_groups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime()),
        sa.Column("updated_at", sa.DateTime()),
        sa.PrimaryKeyConstraint("id", name="pk_consumer_groups"),
        sa.UniqueConstraint("name", name="uq_consumer_groups_name"),
    )
    # Consumers that are there are in no group.
    op.add_column("consumers", sa.Column("group_name", sa.String(255), nullable=True))
    op.create_index("ix_consumers_group_name", "consumers", ["group_name"])


def downgrade() -> None:
    op.drop_index("ix_consumers_group_name", "consumers")
    with op.batch_alter_table("consumers") as batch:
        batch.drop_column("group_name")
    op.drop_table("consumer_groups")
