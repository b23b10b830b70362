"""Clusters count the pods with required anti-affinity that have come

Revision: 0006, follows 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COLUMN = "rules_generation"


def upgrade() -> None:
    # Releases before said nothing about such pods: those that are there are found when nodes are loaded.
    op.add_column("clusters", sa.Column(_COLUMN, sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    op.drop_column("clusters", _COLUMN)
