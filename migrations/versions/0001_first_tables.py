"""The first tables: environments, problems, candidates, runs, sweeps, failures, timings."""

import sqlalchemy as sa
from alembic import op

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
    return sa.Column(name, sa.Integer, nullable=False)


def text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def reference(name: str, to: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, sa.ForeignKey(f"{to}.id"), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        text("backend"),
        text("name"),
        text("arch"),
        integer("multiprocessors"),
        integer("clock_mhz"),
        integer("memory_gb_s"),
        integer("l2_bytes"),
        integer("shared_bytes_block"),
        integer("shared_bytes_multiprocessor"),
        integer("registers_multiprocessor"),
        text("driver"),
        text("torch"),
        text("triton"),
        sqlite_strict=True,
    )
    op.create_table(
        "problems",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
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
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        text("template"),
        text("kwargs"),
        sqlite_strict=True,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, unique=True),
        text("kind"),
        text("spec"),
        text("state"),
        sa.Column("started", sa.REAL, nullable=False),
        sa.Column("heartbeat", sa.REAL, nullable=False),
        sa.Column("finished", sa.REAL),
        sa.Column("progress", sa.Text),
        sa.Column("message", sa.Text),
        sqlite_strict=True,
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("problem", "problems"),
        reference("run", "runs"),
        reference("environment", "environments"),
        sa.UniqueConstraint("problem", "run", "environment"),
        sqlite_strict=True,
    )
    failures = op.create_table(
        "failures",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False, unique=True),
        sqlite_strict=True,
    )
    op.bulk_insert(failures, [{"reason": reason} for reason in FAILURES])
    op.create_table(
        "timings",
        reference("sweep", "sweeps"),
        reference("candidate", "candidates"),
        integer("seq"),
        sa.Column("min_us", sa.REAL),
        sa.Column("median_us", sa.REAL),
        sa.Column("spread_us", sa.REAL),
        integer("repeats"),
        reference("failure", "failures", nullable=True),
        sa.PrimaryKeyConstraint("sweep", "candidate", "seq"),
        sa.CheckConstraint(
            "(failure IS NULL) = (min_us IS NOT NULL OR median_us IS NOT NULL)",
            name="time_or_failure",
        ),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
