"""Sessions of the pages are kept until they end, and traits say whether an import of a node made them

Revision: 0012, follows 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("user_id", sa.Unicode(255), nullable=False),
        sa.Column("half", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sessions"),
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    # Of traits without the mark it is not known what made them, so they stay.
    op.add_column("traits", sa.Column("made_by_import", sa.Boolean(), nullable=True))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    op.drop_column("traits", "made_by_import")
    op.drop_table("sessions")
