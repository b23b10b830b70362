"""Consumers keep the request that they were claimed with

Revision: 0007, follows 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nothing is known of the consumers that are there, nor of those of releases that do not know the column.
    op.add_column("consumers", sa.Column("request", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("consumers") as batch:
        batch.drop_column("request")
