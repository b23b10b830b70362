"""Traits say whether an import of a node made them

Revision: 0013, follows 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of traits without the mark it is not known what made them, so they stay.
    op.add_column("traits", sa.Column("made_by_import", sa.Boolean(), nullable=True))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    op.drop_column("traits", "made_by_import")
