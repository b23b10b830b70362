"""Aggregates can have names

Revision: 0011, follows 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("placement_aggregates", sa.Column("name", sa.Unicode(255), nullable=True))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    op.drop_column("placement_aggregates", "name")
