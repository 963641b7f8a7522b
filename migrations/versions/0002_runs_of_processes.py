"""A run knows its process, its command line, its log, and which earlier run it goes on with."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("command", sa.Text))
        runs.add_column(sa.Column("directory", sa.Text))
        runs.add_column(sa.Column("log", sa.Text))
        runs.add_column(sa.Column("host", sa.Text))
        runs.add_column(sa.Column("machine", sa.Text))
        runs.add_column(sa.Column("pid", sa.Integer))
        runs.add_column(sa.Column("pid_started", sa.Integer))
        runs.add_column(sa.Column("cancel_asked", sa.REAL))
        runs.add_column(
            sa.Column("resumes", sa.Integer, sa.ForeignKey("runs.id", name="resumed_run"))
        )
