"""Samples of use are kept for a day

Revision: 0010, follows 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "use_samples",
        sa.Column("taken_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("block", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("taken_at", "block", name="pk_use_samples"),
    )


def downgrade() -> None:
    op.drop_table("use_samples")
