"""A run knows its process, its command line, its log, and which earlier run it goes on with."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import INTEGER, LONG, REAL, TEXT

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"  # it cannot add a constraint to a table
    with op.batch_alter_table("runs", recreate="always" if on_sqlite else "never") as runs:
        runs.add_column(sa.Column("command", TEXT))
        runs.add_column(sa.Column("directory", TEXT))
        runs.add_column(sa.Column("log", TEXT))
        runs.add_column(sa.Column("host", TEXT))
        runs.add_column(sa.Column("machine", TEXT))
        runs.add_column(sa.Column("pid", LONG))
        runs.add_column(sa.Column("pid_started", LONG))
        runs.add_column(sa.Column("cancel_asked", REAL))
        runs.add_column(sa.Column("resumes", INTEGER, sa.ForeignKey("runs.id", name="resumed_run")))
