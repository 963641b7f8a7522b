"""The columns of the lists of problems and of candidates."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from diode_app import text
from diode_app.data.tables import Column

if TYPE_CHECKING:
    from diode_engine.core.candidate import Candidate
    from diode_engine.core.problem import Problem


def dtype(problem: Problem) -> str:
    """As filter queries write it: bf16, fp32, ...; tf32 where TF32 is allowed."""
    return "tf32" if problem.allow_tf32 else problem.dtype.short


def short(candidate: Candidate | None) -> str:
    """Return a candidate in about 26 characters: its template's short name and its parameters;
    empty for None."""
    from diode_engine.core.templates import template_of

    if candidate is None:
        return ""
    name = candidate.template
    return str(candidate).replace(name, template_of(name).short_name, 1)


def sizes(problem: Problem) -> str:
    """Return a problem's op and sizes, without its types and layouts."""
    batch = f"{problem.B}×" if problem.op.batched else ""
    return f"{problem.op} {batch}{problem.M}×{problem.N}×{problem.K}"


def layout(problem: Problem) -> str:
    """Return the layouts of both operands, such as row/col."""
    return f"{problem.a.layout}/{problem.b.layout}"


_number = partial(Column, right=True)


# In the order in which they are shown by default. Where there is no room, the highest rank goes
# first.
PROBLEM_COLUMNS = (
    _number("problem", "id", "its number in the store, for links such as problem/501",
            of=lambda r: r.number),
    Column("op", "op", "the operator: mm, addmm (with a bias), bmm, baddbmm, scaled_mm",
           of=lambda r: r.problem.op),
    _number("m", "M", "rows of the first operand and of the result", of=lambda r: r.problem.M),
    _number("n", "N", "columns of the second operand and of the result",
            of=lambda r: r.problem.N),
    _number("k", "K", "columns of the first operand, rows of the second: what is summed over",
            of=lambda r: r.problem.K),
    _number("b", "B", "how many products of this size are one problem (bmm); 1 otherwise",
            of=lambda r: r.problem.B, rank=2),
    Column("dtype", "dtype", "the operands' type, and the result's where it is another",
           of=lambda r: dtype(r.problem)),
    Column("layout", "layout", "how the two operands lie in memory: row or column after column",
           of=lambda r: layout(r.problem), sortable=False, rank=4),
    _number("best", "best µs", "the time of the fastest candidate, in µs", text.microseconds,
            of=lambda r: r.best_us),
    _number("efficiency", "ATen eff.", "of the library: the best time over the library's; 1 is as "
            "fast as the best", text.ratio, of=lambda r: r.efficiency),
    _number("aten", "ATen µs", "the time of the library's kernel (cuBLAS or hipBLASLt), in µs",
            text.microseconds, of=lambda r: r.aten_us, rank=1),
    _number("candidates", "tried", "distinct kernels that were tried, also those that failed",
            text.count, of=lambda r: r.candidates, rank=5),
    _number("failed", "failed", "candidates that have no time, since they failed", text.count,
            of=lambda r: r.failed, rank=6),
    Column("gpu", "GPU", "what it was timed on", of=lambda r: r.environment.hardware.name, rank=8),
    Column("fastest", "fastest", "the candidate with the best time", short, of=lambda r: r.best,
           sortable=False, rank=3),
    Column("bias", "bias", "how the bias lies, where the operator has one",
           of=lambda r: r.problem.bias, sortable=False, rank=9),
    Column("align", "align", "of the two operands, in elements: what every row's start is "
           "divisible by", of=lambda r: f"{r.problem.a.align}/{r.problem.b.align}",
           sortable=False, rank=10),
    _number("timings", "timings", "measurements in the store, also repeated ones", text.count,
            of=lambda r: r.timings, rank=7),
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
