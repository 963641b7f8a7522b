"""The columns of the lists of problems and of candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from diode_app import text
from diode_app.data.columns import Column

if TYPE_CHECKING:
    from diode_engine.core.candidate import Candidate
    from diode_engine.core.problem import Problem
    from diode_engine.store.query import ProblemRow


def dtype(problem: Problem) -> str:
    """As filter queries write it: bf16, fp32, ...; tf32 where TF32 is allowed."""
    return "tf32" if problem.allow_tf32 else problem.dtype.short


def short(candidate: Candidate) -> str:
    """Return a candidate in about 26 characters: its template's short name and its parameters."""
    from diode_engine.core.templates import template_of

    name = candidate.template
    return str(candidate).replace(name, template_of(name).short_name, 1)


def layout(problem: Problem) -> str:
    """Return the layouts of both operands, such as row/col."""
    return f"{problem.a.layout}/{problem.b.layout}"


@dataclass(frozen=True, kw_only=True)
class ProblemColumn(Column):
    """A column of the list of problems: `cell` writes a problem's cell. The store sorts by the
    column's key."""

    cell: Callable[[ProblemRow], str]


def _column(
    key: str,
    meaning: str,
    cell: Callable[[ProblemRow], str],
    *,
    label: str = "",
    sortable: bool = True,
    right: bool = True,
    rank: int = 0,
) -> ProblemColumn:
    """Return a column of numbers."""
    return ProblemColumn(
        key=key, label=label or key, meaning=meaning, cell=cell, rank=rank, sortable=sortable,
        right=right,
    )  # fmt: skip


_text = partial(_column, right=False)


def _fastest(row: ProblemRow) -> str:
    return "" if row.best is None else short(row.best)


# In the order in which they are shown by default. Where there is no room, the highest rank goes
# first.
PROBLEM_COLUMNS = (
    _column("problem", "its number in the store, for links such as problem/501",
            lambda r: str(r.number), label="id"),
    _text("op", "the operator: mm, addmm (with a bias), bmm, baddbmm, scaled_mm",
          lambda r: str(r.problem.op)),
    _column("m", "rows of the first operand and of the result", lambda r: str(r.problem.M),
            label="M"),
    _column("n", "columns of the second operand and of the result", lambda r: str(r.problem.N),
            label="N"),
    _column("k", "columns of the first operand, rows of the second: what is summed over",
            lambda r: str(r.problem.K), label="K"),
    _column("b", "how many products of this size are one problem (bmm); 1 otherwise",
            lambda r: str(r.problem.B), label="B", rank=2),
    _text("dtype", "the operands' type, and the result's where it is another",
          lambda r: dtype(r.problem)),
    _text("layout", "how the two operands lie in memory: row or column after column",
          lambda r: layout(r.problem), sortable=False, rank=4),
    _column("best", "the time of the fastest candidate, in µs",
            lambda r: text.microseconds(r.best_us), label="best µs"),
    _column("efficiency", "of the library: the best time over the library's; 1 is as fast as the "
            "best", lambda r: text.ratio(r.efficiency), label="ATen eff."),
    _column("aten", "the time of the library's kernel (cuBLAS or hipBLASLt), in µs",
            lambda r: text.microseconds(r.aten_us), label="ATen µs", rank=1),
    _column("candidates", "distinct kernels that were tried, also those that failed",
            lambda r: f"{r.candidates:,}", label="tried", rank=5),
    _column("failed", "candidates that have no time, since they failed",
            lambda r: f"{r.failed:,}", rank=6),
    _text("gpu", "what it was timed on", lambda r: r.environment.hardware.name, label="GPU",
          rank=8),
    _text("fastest", "the candidate with the best time", _fastest, sortable=False, rank=3),
    _text("bias", "how the bias lies, where the operator has one", lambda r: str(r.problem.bias),
          sortable=False, rank=9),
    _text("align", "of the two operands, in elements: what every row's start is divisible by",
          lambda r: f"{r.problem.a.align}/{r.problem.b.align}", sortable=False, rank=10),
    _column("timings", "measurements in the store, also repeated ones",
            lambda r: f"{r.timings:,}", rank=7),
)  # fmt: skip
# What lists of candidates share.
CANDIDATE = (
    Column("rank", "#", "by measured time, 1 is the fastest; where nothing is measured, by "
           "predicted time", right=True),
    Column("taken by", "taken", "who would take it, by the signs above the table", sortable=False),
    Column("candidate", "candidate", "the kernel: its tile sizes, stages and warps, or the "
           "library's name"),
)  # fmt: skip
ROOFLINE_US = Column(
    "roofline_us", "R: µs", "the least time that its arithmetic and its memory traffic allow, in "
    "µs", text.microseconds, right=True,
)  # fmt: skip
SPACE = Column(
    "space", "space", "the search space that it is of: DEFAULT, which max-autotune tries, or "
    "EXHAUSTIVE",
)  # fmt: skip


@lru_cache
def ranking_columns(other: bool) -> tuple[Column, ...]:
    """Return the columns of candidates as a model ranks them; `other`: beside another model."""
    return (
        *CANDIDATE,
        Column("predicted_us", "1: µs" if other else "µs",
               "the time that the model predicts, in µs", text.microseconds, right=True),
        Column("behind", "behind", "how much slower than the first it is predicted to be, in %",
               text.change, right=True, rank=1),
        *([Column("other_us", "2: µs", "the time that the second model predicts, in µs",
                  text.microseconds, right=True, rank=2)] if other else []),
        replace(ROOFLINE_US, label="estimate", rank=3),
        replace(SPACE, rank=4),
    )  # fmt: skip


@lru_cache
def measured_columns(models: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of candidates as they were measured, beside these models' predictions."""
    of_models = [
        column
        for i, name in enumerate(models, 1)
        for column in (
            Column(f"{name} us", f"{i}: µs", f"the time that {name} predicts, in µs",
                   text.microseconds, right=True, rank=2 * i),
            Column(f"{name} error", f"{i}: error", "the predicted time against the measured one",
                   text.change, right=True, rank=2 * i + 1),
        )
    ]  # fmt: skip
    return (
        *CANDIDATE,
        Column("time_us", "µs", "median measured time, in µs; where it was timed several times, "
               "over all of them", text.microseconds, right=True),
        Column("efficiency", "eff.", "the best time divided by this one; 1 is as fast as the best "
               "kernel that was measured", text.ratio, right=True, rank=1),
        *of_models,
        replace(ROOFLINE_US, rank=40),
        replace(SPACE, rank=41),
        Column("spread_us", "spread µs", "the interquartile range of its measurements, in µs",
               text.microseconds, right=True, rank=42),
        Column("timings", "timings", "how often it was measured", right=True, rank=43),
    )  # fmt: skip


FAILED_COLUMNS = (
    *CANDIDATE[1:],
    Column("why", "why", "why it has no time", sortable=False),
    replace(SPACE, rank=2),
    Column("timings", "timings", "how often it was tried", right=True, rank=1),
)
