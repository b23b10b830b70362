"""Every change leaves a record of who made it

Revision: 0004, follows 0003
"""

import sqlalchemy as sa
from alembic import op

from placement.storage.tables import LONG_ID, Revision

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLE = "audit_records"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", LONG_ID, nullable=False),
        sa.Column("recorded_at", sa.DateTime(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("consumer_id", sa.String(36)),
        sa.Column("revision", Revision(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
        sa.Column("user_id", sa.Text()),
        sa.Column("project_id", sa.Text()),
        sa.Column("roles", sa.Text()),
        sa.Column("request_id", sa.String(64)),
        sa.Column("global_request_id", sa.String(64)),
        sa.Column("address", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_audit_records"),
    )
    for column in ("recorded_at", "target", "revision", "request_id"):
        op.create_index(f"ix_{_TABLE}_{column}", _TABLE, [column])


def downgrade() -> None:
    op.drop_table(_TABLE)
