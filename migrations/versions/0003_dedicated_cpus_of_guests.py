"""Consumers that were claimed for a flavor say which CPUs of the guest are dedicated

Revision: 0003, follows 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nothing is known of the consumers that are there, nor of those of releases that do not know the column.
    op.add_column("consumers", sa.Column("dedicated_cpus", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("consumers") as batch:
        batch.drop_column("dedicated_cpus")
