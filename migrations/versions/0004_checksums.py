"""A checksum of each sweep's timings, so that a check finds one that was changed or lost."""

import numpy as np
import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import LONG

revision = "0004"
down_revision = "0003"

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_ROWS = 200_000  # read at a time


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("sweeps", recreate="always" if on_sqlite else "never") as sweeps:
        sweeps.add_column(sa.Column("checksum", LONG, nullable=False, server_default=sa.text("0")))
    if on_sqlite:  # on PostgreSQL this runs only in a new store, which has no timings
        write_checksums(op.get_bind().connection.driver_connection)


def write_checksums(connection) -> None:
    """Writes the checksums of all timings, as diode_engine.store.checksums computes them."""
    rows = connection.execute(
        "SELECT sweep, candidate, seq, min_us, median_us, spread_us, repeats,"
        " coalesce(failure, 0) FROM timings ORDER BY sweep"
    )
    while some := rows.fetchmany(_ROWS):
        columns = list(zip(*some, strict=True))
        sweep = np.array(columns[0], dtype=np.int64)
        mixed = np.zeros(len(sweep), dtype=np.uint64)
        for i in (1, 2, 3, 4, 5, 6, 7):
            if i in (3, 4, 5):
                times = np.array(columns[i], dtype=np.float64)  # None becomes NaN
                bits = np.where(np.isnan(times), -1.0, times + 0.0).view(np.uint64)
            else:
                bits = np.array(columns[i], dtype=np.int64).view(np.uint64)
            mixed = (mixed ^ bits) * _PRIME
            mixed ^= mixed >> np.uint64(29)
        starts = np.flatnonzero(np.diff(sweep, prepend=-1))
        sums = np.add.reduceat((mixed >> np.uint64(33)).astype(np.int64), starts)
        connection.executemany(
            "UPDATE sweeps SET checksum = checksum + ? WHERE id = ?",
            zip(sums.tolist(), sweep[starts].tolist(), strict=True),
        )
