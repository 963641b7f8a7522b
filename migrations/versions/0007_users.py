"""Who started a run."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import TEXT

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("runs", recreate="always" if on_sqlite else "never") as runs:
        runs.add_column(sa.Column("user", TEXT))
