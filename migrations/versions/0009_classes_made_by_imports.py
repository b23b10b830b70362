"""Resource classes say whether an import of a node made them

Revision: 0009, follows 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of classes without the mark it is not known what made them, so they stay.
    op.add_column("resource_classes", sa.Column("made_by_import", sa.Boolean(), nullable=True))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    op.drop_column("resource_classes", "made_by_import")
