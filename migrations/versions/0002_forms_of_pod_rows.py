"""Rows of pods say in which form they are

Revision: 0002, follows 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What is there was written in the first form, and so is what releases write that do not know the column.
    op.add_column("pods", sa.Column("format", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    with op.batch_alter_table("pods") as batch:
        batch.drop_column("format")
