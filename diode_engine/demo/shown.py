"""One problem of the demonstration: what is predicted, measured and chosen for it, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.models.predictor import Predictor


@dataclass(frozen=True)
class Kernel:
    """A candidate, the microseconds predicted for it, and its timing, if it was timed."""

    candidate: Candidate
    predicted_us: float | None
    timing: Timing | None

    @property
    def measured_us(self) -> float | None:
        return None if self.timing is None else self.timing.time_us


@dataclass(frozen=True)
class Shown:
    """A problem and four of its kernels. `aten` is ATen's fastest kernel; `default` is the fastest
    of those that max-autotune times in its DEFAULT space, ATen's among them. The fastest is by
    measured times; where none was measured, by predicted ones; None where there is no kernel."""

    problem: Problem
    chosen: Kernel
    aten: Kernel | None
    default: Kernel | None
    best: Kernel | None  # of all that were measured

    @classmethod
    def of(
        cls, problem: Problem, answer: Mapping[str, Any], table: TimingTable, predictor: Predictor
    ) -> Shown:
        """The problem with the answer of `demo.choose` on it; `table` has the measured timings."""
        default = [Candidate.from_dict(candidate) for candidate in answer["default"]]
        timings = _timings(problem, table)
        timed = [candidate for candidate, timing in timings.items() if timing.time_us is not None]

        def kernels(candidates: Sequence[Candidate]) -> list[Kernel]:
            predicted = predictor.predict_us(problem, candidates)
            return [
                Kernel(candidate, None if math.isnan(us) else float(us), timings.get(candidate))
                for candidate, us in zip(candidates, predicted.tolist(), strict=True)
            ]

        chosen = Candidate.from_dict(answer["chosen"])
        return cls(
            problem,
            Kernel(chosen, answer["predicted_us"], timings.get(chosen)),
            _fastest(kernels([c for c in default if c.is_extern])),
            _fastest(kernels(default)),
            _fastest(kernels(timed)),
        )

    def text(self) -> str:
        """A heading, and a line for each kernel with its predicted and measured time."""
        rows = [("Diode's choice", self.chosen), ("ATen", self.aten),
                ("DEFAULT's best", self.default), ("best measured", self.best)]  # fmt: skip
        lines = [f"{self.problem!s:<62}{'predicted':>12}{'measured':>12}"]
        for title, kernel in rows:
            if kernel is None:
                lines.append(f"  {title:<15} none")
                continue
            measured = _us(kernel.measured_us)
            if kernel.timing is not None and kernel.timing.failure is not None:
                measured = str(kernel.timing.failure)
            lines.append(
                f"  {title:<15} {kernel.candidate!s:<44}{_us(kernel.predicted_us):>12}"
                f"{measured:>12}"
            )
        return "\n".join(lines)


def _timings(problem: Problem, table: TimingTable) -> dict[Candidate, Timing]:
    """The timings of this problem's candidates; the shortest one where a candidate was timed more
    than once."""
    rows = np.flatnonzero(
        np.array([known == problem for known in table.problems], np.bool_)[table.problem]
    )
    rows = rows[np.argsort(-np.nan_to_num(table.time_us[rows], nan=np.inf), kind="stable")]
    return {table.candidates[table.candidate[row]]: table.timing(int(row)) for row in rows}


def _fastest(kernels: list[Kernel]) -> Kernel | None:
    def order(kernel: Kernel) -> tuple[float, float]:
        measured, predicted = kernel.measured_us, kernel.predicted_us
        return (
            math.inf if measured is None else measured,
            math.inf if predicted is None else predicted,
        )

    return min(kernels, key=order, default=None)


def _us(us: float | None) -> str:
    return "–" if us is None else f"{us:.1f} µs"


def measured_text(
    gpu: str,
    problems: Sequence[Problem],
    stock: Sequence[Mapping[str, Any]],
    diode: Sequence[Mapping[str, Any]],
) -> str:
    """A table of the answers of `demo.measure` without and with the model."""
    lines = [
        f"On this {gpu}: microseconds a launch, and seconds to compile",
        f"{'':<54}{'eager':>9}{'DEFAULT':>18}{'Diode':>18}",
    ]
    for problem, before, after in zip(problems, stock, diode, strict=True):
        remark = "" if after["chosen_by_model"] else "  not chosen by the model"
        if not (before["right"] and after["right"]):
            remark += "  WRONG RESULT"
        lines.append(
            f"{problem!s:<54}{after['eager_us']:>9.1f}{before['us']:>9.1f}"
            f"{before['compile_s']:>7.2f} s{after['us']:>9.1f}{after['compile_s']:>7.2f} s{remark}"
        )
    eager = _geomean(a["eager_us"] / a["us"] for a in diode)
    default = _geomean(b["us"] / a["us"] for a, b in zip(diode, stock, strict=True))
    compiling = sum(b["compile_s"] for b in stock) / sum(a["compile_s"] for a in diode)
    lines.append(
        f"Diode's kernels run {eager:.2f} times as fast as eager's and {default:.2f} times as fast "
        f"as DEFAULT's (geometric means), and are compiled {compiling:.1f} times as fast."
    )
    return "\n".join(lines)


def _geomean(ratios: Iterable[float]) -> float:
    return math.exp(fmean(math.log(ratio) for ratio in ratios))
