"""The first tables: environments, problems, candidates, runs, sweeps, failures, timings."""

import sqlalchemy as sa
from alembic import op

from diode_engine.store.types import INTEGER, LONG, REAL, TEXT

revision = "0001"
down_revision = None

FAILURES = (
    "compile_error",
    "out_of_resources",
    "out_of_memory",
    "launch_error",
    "illegal_access",
    "wrong_result",
    "timeout",
    "crash",
    "cut_short",
)


def integer(name: str) -> sa.Column[int]:
    return sa.Column(name, INTEGER, nullable=False)


def long(name: str) -> sa.Column[int]:
    return sa.Column(name, LONG, nullable=False)


def text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False)


def reference(name: str, to: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, INTEGER, sa.ForeignKey(f"{to}.id"), nullable=nullable)


def of_timing(name: str, to: str, *, nullable: bool = False) -> sa.Column[int]:
    """A reference of a timing: a constraint in SQLite, none on PostgreSQL (see
    `diode_engine.store.schema`)."""
    if op.get_bind().dialect.name == "sqlite":
        return reference(name, to, nullable=nullable)
    return sa.Column(name, INTEGER, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("key", TEXT, nullable=False, unique=True),
        text("backend"),
        text("name"),
        text("arch"),
        long("multiprocessors"),
        long("clock_mhz"),
        long("memory_gb_s"),
        long("l2_bytes"),
        long("shared_bytes_block"),
        long("shared_bytes_multiprocessor"),
        long("registers_multiprocessor"),
        text("driver"),
        text("torch"),
        text("triton"),
        sqlite_strict=True,
    )
    op.create_table(
        "problems",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("key", TEXT, nullable=False, unique=True),
        text("op"),
        integer("B"),
        integer("M"),
        integer("N"),
        integer("K"),
        text("dtype"),
        text("out_dtype"),
        text("a_layout"),
        integer("a_align"),
        text("b_layout"),
        integer("b_align"),
        integer("allow_tf32"),
        text("bias"),
        sqlite_strict=True,
    )
    op.create_table(
        "candidates",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("key", TEXT, nullable=False, unique=True),
        text("template"),
        text("kwargs"),
        sqlite_strict=True,
    )
    op.create_table(
        "runs",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("key", TEXT, unique=True),
        text("kind"),
        text("spec"),
        text("state"),
        sa.Column("started", REAL, nullable=False),
        sa.Column("heartbeat", REAL, nullable=False),
        sa.Column("finished", REAL),
        sa.Column("progress", TEXT),
        sa.Column("message", TEXT),
        sqlite_strict=True,
    )
    op.create_table(
        "sweeps",
        sa.Column("id", INTEGER, primary_key=True),
        reference("problem", "problems"),
        reference("run", "runs"),
        reference("environment", "environments"),
        sa.UniqueConstraint("problem", "run", "environment"),
        sqlite_strict=True,
    )
    failures = op.create_table(
        "failures",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("reason", TEXT, nullable=False, unique=True),
        sqlite_strict=True,
    )
    op.bulk_insert(failures, [{"reason": reason} for reason in FAILURES])
    op.create_table(
        "timings",
        of_timing("sweep", "sweeps"),
        of_timing("candidate", "candidates"),
        integer("seq"),
        sa.Column("min_us", REAL),
        sa.Column("median_us", REAL),
        sa.Column("spread_us", REAL),
        integer("repeats"),
        of_timing("failure", "failures", nullable=True),
        sa.PrimaryKeyConstraint("sweep", "candidate", "seq"),
        sa.CheckConstraint(
            "(failure IS NULL) = (min_us IS NOT NULL OR median_us IS NOT NULL)",
            name="time_or_failure",
        ),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
