"""The compiler's facts on timed kernels: registers, spills, shared memory, instructions."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import INTEGER

revision = "0006"
down_revision = "0005"

_FACTS = "registers", "spill_stores", "spill_loads", "shared_bytes", "instructions"


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"

    def of_timing(name: str, to: str) -> sa.Column[int]:
        # As in `timings`: on PostgreSQL references are no constraints, for quick bulk inserts.
        keys = [sa.ForeignKey(f"{to}.id")] if on_sqlite else []
        return sa.Column(name, INTEGER, *keys, nullable=False)

    op.create_table(
        "kernels",
        of_timing("sweep", "sweeps"),
        of_timing("candidate", "candidates"),
        *(sa.Column(name, INTEGER, nullable=False) for name in _FACTS),
        sa.PrimaryKeyConstraint("sweep", "candidate"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("kernels_by_spills", "kernels", ["spill_stores", "sweep"])
