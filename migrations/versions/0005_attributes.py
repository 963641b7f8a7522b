"""The attributes of problems, which only some operators have (how operands are scaled, for
example)."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import TEXT

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("problems", recreate="always" if on_sqlite else "never") as problems:
        problems.add_column(
            sa.Column("attributes", TEXT, nullable=False, server_default=sa.text("'{}'"))
        )
