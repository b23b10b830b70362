"""Providers tell writes of use from all others

Revision: 0008, follows 0007
"""

import sqlalchemy as sa
from alembic import op

from placement.storage.tables import Revision

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_COLUMNS = ("content_revision", "usage_revision")


def upgrade() -> None:
    # Of rows without them, and of those that a release wrote last that does not know them, anything may have
    # changed.
    for column in _COLUMNS:
        op.add_column("resource_providers", sa.Column(column, Revision(), nullable=True))


def downgrade() -> None:
    # Others refer to the table, so it must not be made anew.
    for column in _COLUMNS:
        op.drop_column("resource_providers", column)
