"""The tables, as the newest migration leaves them (a test compares the two).

A timing belongs to a sweep: the candidates that one run timed on one problem in one environment. So
a timing takes about 45 bytes, and the timings of a sweep are neighbours in the file: `timings` is
one B-tree ordered by (sweep, candidate, seq). `seq` numbers the timings of the same candidate in a
sweep, from 0. A reason of failure is a row of `failures`.

`summaries` and `tallies` are derived from the timings and written with them, in the same
transaction, so that a page of problems, or the counts of a store, can be read without reading
millions of timings. A sweep's `checksum` (see `checksums`) is derived in the same way; `soundness`
compares it with the timings.

An import is written in many short transactions, so that others can write in between. Until it is
finished its run has a key that begins with UNFINISHED: its sweeps are left out of all questions
(see `is_finished`), and nothing is derived from them. The last transaction derives, and gives the
run its key (see `staging`).

On PostgreSQL the references of `timings` and `kernels` are not constraints: a trigger would look up
each row, which makes a bulk insert six times slower. `ingest` writes what a row refers to before
the row, nothing is ever deleted, and `soundness` looks for what is missing.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from diode_engine.store.types import INTEGER, LONG, REAL, TEXT

HEAD = "0007"  # the newest revision in migrations/versions
APPLICATION_ID = 0x44494F44  # "DIOD": tells a store from any other SQLite file

UNFINISHED = "unfinished:"  # begins the key of a run that is still being imported

metadata = sa.MetaData()


def _id() -> sa.Column[int]:
    return sa.Column("id", INTEGER, primary_key=True)


def _key() -> sa.Column[str]:
    return sa.Column("key", TEXT, nullable=False, unique=True)


def _required(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _reference(name: str, to: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, INTEGER, sa.ForeignKey(f"{to}.id"), nullable=nullable)


def _table(name: str, *parts: sa.schema.SchemaItem, rowid: bool = True) -> sa.Table:
    """A table. Without `rowid`, SQLite keeps its rows in the order of the primary key."""
    return sa.Table(name, metadata, *parts, sqlite_strict=True, sqlite_with_rowid=rowid)


environments = _table(
    "environments",
    _id(),
    _key(),
    _required("backend", TEXT),
    _required("name", TEXT),
    _required("arch", TEXT),
    _required("multiprocessors", LONG),
    _required("clock_mhz", LONG),
    _required("memory_gb_s", LONG),
    _required("l2_bytes", LONG),
    _required("shared_bytes_block", LONG),
    _required("shared_bytes_multiprocessor", LONG),
    _required("registers_multiprocessor", LONG),
    _required("driver", TEXT),
    _required("torch", TEXT),
    _required("triton", TEXT),
)

problems = _table(
    "problems",
    _id(),
    _key(),
    _required("op", TEXT),
    _required("B", INTEGER),
    _required("M", INTEGER),
    _required("N", INTEGER),
    _required("K", INTEGER),
    _required("dtype", TEXT),
    _required("out_dtype", TEXT),
    _required("a_layout", TEXT),
    _required("a_align", INTEGER),
    _required("b_layout", TEXT),
    _required("b_align", INTEGER),
    _required("allow_tf32", INTEGER),
    _required("bias", TEXT),
    # The op's own fields that do not have their usual value: canonical JSON.
    sa.Column("attributes", TEXT, nullable=False, server_default=sa.text("'{}'")),
)

candidates = _table(
    "candidates",
    _id(),
    _key(),
    _required("template", TEXT),
    _required("kwargs", TEXT),  # canonical JSON
)

runs = _table(
    "runs",
    _id(),
    sa.Column("key", TEXT, unique=True),  # the content key of what was imported
    _required("kind", TEXT),
    _required("spec", TEXT),  # JSON
    _required("state", TEXT),
    _required("started", REAL),  # seconds since 1970, UTC
    _required("heartbeat", REAL),
    sa.Column("finished", REAL),
    sa.Column("progress", TEXT),  # JSON
    sa.Column("message", TEXT),
    sa.Column("command", TEXT),  # JSON
    sa.Column("directory", TEXT),
    sa.Column("log", TEXT),
    sa.Column("host", TEXT),
    sa.Column("machine", TEXT),
    sa.Column("pid", LONG),
    sa.Column("pid_started", LONG),
    sa.Column("cancel_asked", REAL),  # seconds since 1970, UTC
    sa.Column("resumes", INTEGER, sa.ForeignKey("runs.id", name="resumed_run")),
    sa.Column("note", TEXT),
    sa.Column("user", TEXT),  # who started it
)

sweeps = _table(
    "sweeps",
    _id(),
    _reference("problem", "problems"),
    _reference("run", "runs"),
    _reference("environment", "environments"),
    sa.Column("checksum", LONG, nullable=False, server_default=sa.text("0")),
    sa.UniqueConstraint("problem", "run", "environment"),
    sa.Index("sweeps_of_run", "run", "problem"),
)

failures = _table(
    "failures",
    _id(),
    sa.Column("reason", TEXT, nullable=False, unique=True),
)

timings = _table(
    "timings",
    _reference("sweep", "sweeps"),
    _reference("candidate", "candidates"),
    _required("seq", INTEGER),
    sa.Column("min_us", REAL),
    sa.Column("median_us", REAL),
    sa.Column("spread_us", REAL),
    _required("repeats", INTEGER),
    _reference("failure", "failures", nullable=True),
    sa.PrimaryKeyConstraint("sweep", "candidate", "seq"),
    sa.CheckConstraint(
        "(failure IS NULL) = (min_us IS NOT NULL OR median_us IS NOT NULL)",
        name="time_or_failure",
    ),
    rowid=False,
)

# The KernelFacts of a timing's kernel, where they are known. Timings of the same candidate in a
# sweep have the same kernel.
kernels = _table(
    "kernels",
    _reference("sweep", "sweeps"),
    _reference("candidate", "candidates"),
    _required("registers", INTEGER),
    _required("spill_stores", INTEGER),
    _required("spill_loads", INTEGER),
    _required("shared_bytes", INTEGER),
    _required("instructions", INTEGER),
    sa.PrimaryKeyConstraint("sweep", "candidate"),
    sa.Index("kernels_by_spills", "spill_stores", "sweep"),
    rowid=False,
)  # fmt: skip

for _constraint in timings.foreign_key_constraints | kernels.foreign_key_constraints:
    _constraint.ddl_if(dialect="sqlite")

# A row for each problem in each environment. A candidate's time is the median of the times of all
# its timings there, of whatever run.
summaries = _table(
    "summaries",
    _reference("problem", "problems"),
    _reference("environment", "environments"),
    _required("candidates", INTEGER),  # distinct ones, timed or failed
    _required("failed", INTEGER),  # those of them that have failures only
    _required("timings", INTEGER),  # failures included
    _reference("best", "candidates", nullable=True),
    sa.Column("best_us", REAL),
    sa.Column("aten_us", REAL),  # of the fastest `aten::` candidate
    sa.PrimaryKeyConstraint("problem", "environment"),
    rowid=False,
)

# How many timings of each kind a run has; failure is 0 for timings with a time.
tallies = _table(
    "tallies",
    _reference("run", "runs"),
    _reference("environment", "environments"),
    _required("op", TEXT),
    _required("dtype", TEXT),
    _required("allow_tf32", INTEGER),
    _required("failure", INTEGER),
    _required("timings", INTEGER),
    sa.PrimaryKeyConstraint("run", "environment", "op", "dtype", "allow_tf32", "failure"),
    rowid=False,
)

tags = _table(
    "tags",
    _reference("run", "runs"),
    _required("tag", TEXT),
    sa.PrimaryKeyConstraint("run", "tag"),
    rowid=False,
)

curves = _table(
    "curves",
    _reference("run", "runs"),
    _required("series", TEXT),
    _required("step", REAL),
    sa.Column("value", REAL),  # NULL for NaN
    sa.PrimaryKeyConstraint("run", "series", "step"),
    rowid=False,
)

results = _table(
    "results",
    sa.Column("run", INTEGER, sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("document", sa.LargeBinary, nullable=False),  # JSON, compressed with Zstandard
)


def unfinished() -> sa.Select[Any]:
    """The query of the runs whose import is not finished, or was killed before it was."""
    r = runs.alias()
    return sa.select(r.c.id).where(r.c.key.startswith(UNFINISHED, autoescape=True))


def is_finished(run: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """The condition that the timings of a run are to be seen."""
    return run.not_in(unfinished())


def hidden_sweeps() -> sa.Select[Any]:
    """The query of the sweeps whose timings are not to be seen."""
    return sa.select(sweeps.c.id).where(sweeps.c.run.in_(unfinished()))


def of_sweeps(table: sa.Table, *columns: Any) -> sa.Select[Any]:
    """The query of these columns of `timings` or `kernels`: of the rows that are to be seen, on the
    problem and in the environment whose ids are the parameters in_problem and in_environment."""
    s = sweeps.c
    where = (
        s.problem == sa.bindparam("in_problem"),
        s.environment == sa.bindparam("in_environment"),
        is_finished(s.run),
    )
    return sa.select(*columns).join_from(sweeps, table).where(*where)
