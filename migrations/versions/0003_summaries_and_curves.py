"""Summaries of the timings, and a run's note, tags, curves and result."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import INTEGER, REAL, TEXT

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("runs", recreate="always" if on_sqlite else "never") as runs:
        runs.add_column(sa.Column("note", TEXT))
    op.create_index("sweeps_of_run", "sweeps", ["run", "problem"])
    op.create_table(
        "summaries",
        sa.Column("problem", INTEGER, sa.ForeignKey("problems.id"), nullable=False),
        sa.Column("environment", INTEGER, sa.ForeignKey("environments.id"), nullable=False),
        sa.Column("candidates", INTEGER, nullable=False),
        sa.Column("failed", INTEGER, nullable=False),
        sa.Column("timings", INTEGER, nullable=False),
        sa.Column("best", INTEGER, sa.ForeignKey("candidates.id")),
        sa.Column("best_us", REAL),
        sa.Column("aten_us", REAL),
        sa.PrimaryKeyConstraint("problem", "environment"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tallies",
        sa.Column("run", INTEGER, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("environment", INTEGER, sa.ForeignKey("environments.id"), nullable=False),
        sa.Column("op", TEXT, nullable=False),
        sa.Column("dtype", TEXT, nullable=False),
        sa.Column("allow_tf32", INTEGER, nullable=False),
        sa.Column("failure", INTEGER, nullable=False),
        sa.Column("timings", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("run", "environment", "op", "dtype", "allow_tf32", "failure"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tags",
        sa.Column("run", INTEGER, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("tag", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("run", "tag"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "curves",
        sa.Column("run", INTEGER, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("series", TEXT, nullable=False),
        sa.Column("step", REAL, nullable=False),
        sa.Column("value", REAL),
        sa.PrimaryKeyConstraint("run", "series", "step"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "results",
        sa.Column("run", INTEGER, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sqlite_strict=True,
    )
    if on_sqlite:  # on PostgreSQL this runs only in a new store, which has no timings
        op.execute(_SUMMARIES)
        op.execute(_TALLIES)


# The median is the mean of the one or two in the middle. Of equally fast candidates the one that
# the store met first is the best.
_SUMMARIES = """
WITH timed AS (
    SELECT s.problem, s.environment, t.candidate,
           coalesce(t.min_us, t.median_us) AS us,
           count(*) OVER whole AS n,
           count(coalesce(t.min_us, t.median_us)) OVER whole AS ok,
           row_number() OVER (
               PARTITION BY s.problem, s.environment, t.candidate
               ORDER BY coalesce(t.min_us, t.median_us) NULLS LAST
           ) AS place
    FROM timings t JOIN sweeps s ON t.sweep = s.id
    WINDOW whole AS (PARTITION BY s.problem, s.environment, t.candidate)
),
each_candidate AS (
    SELECT problem, environment, candidate, max(n) AS n,
           avg(CASE WHEN place IN ((ok + 1) / 2, (ok + 2) / 2) THEN us END) AS us
    FROM timed GROUP BY problem, environment, candidate
),
ranked AS (
    SELECT e.*, c.template LIKE 'aten::%' AS aten,
           row_number() OVER (
               PARTITION BY problem, environment ORDER BY us NULLS LAST, candidate
           ) AS place
    FROM each_candidate e JOIN candidates c ON e.candidate = c.id
)
INSERT INTO summaries
SELECT problem, environment, count(*), sum(us IS NULL), sum(n),
       max(CASE WHEN place = 1 AND us IS NOT NULL THEN candidate END),
       min(us), min(CASE WHEN aten THEN us END)
FROM ranked GROUP BY problem, environment
"""

_TALLIES = """
INSERT INTO tallies
SELECT s.run, s.environment, p.op, p.dtype, p.allow_tf32, coalesce(t.failure, 0), count(*)
FROM timings t JOIN sweeps s ON t.sweep = s.id JOIN problems p ON s.problem = p.id
GROUP BY 1, 2, 3, 4, 5, 6
"""
