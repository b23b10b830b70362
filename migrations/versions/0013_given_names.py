"""Projects, users and consumers can have names that people gave them

Revision: 0013, follows 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "given_names",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("uuid", sa.Unicode(255), nullable=False),
        sa.Column("name", sa.Unicode(255), nullable=False),
        sa.Column("written_by", sa.Unicode(255), nullable=True),
        sa.Column("written_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_given_names"),
        sa.UniqueConstraint("uuid", "kind", name="uq_given_names_uuid_kind"),
    )
    op.create_index("ix_given_names_name", "given_names", ["name"])


def downgrade() -> None:
    op.drop_table("given_names")
