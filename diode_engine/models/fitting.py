"""What models are fitted to, and how a fit reports its progress."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.documents import shortened
from diode_engine.errors import TrainingError
from diode_engine.models.protocol import Matrix

_FACTS = "facts"


@dataclass(frozen=True, eq=False)
class Examples:
    """n timed rows, those of one problem together.

    `x` is [n, F] (features.matrix), `log_us` [n] natural logarithms of measured
    microseconds, `problem` [n] any number that rows of one problem share. `heads` [m, n], where a
    teacher was asked, are the log times by each of its m members, whose mean is `log_us`. Raises
    TrainingError where there is nothing to learn from, or a value is not finite.
    """

    x: Matrix
    log_us: Matrix
    problem: npt.NDArray[np.integer[Any]]
    heads: Matrix | None = None

    def __post_init__(self) -> None:
        n = len(self.log_us)
        if not n:
            raise TrainingError("There are no timings to learn from; collect or import some.")
        if self.x.shape[0] != n or self.problem.shape != (n,):
            raise TrainingError("The features, times and problems differ in number of rows.")
        if not (np.isfinite(self.log_us).all() and np.isfinite(self.x).all()):
            raise TrainingError("A feature or a time is not finite; leave failed timings out.")
        if len(self.starts) != len(np.unique(self.problem)):
            raise TrainingError("The rows of a problem are not together; sort them by problem.")

    @classmethod
    def make(cls, table: TimingTable, hardware: Hardware | None = None) -> Examples:
        """The table's successful timings that features can be made for, sorted by problem;
        the others are left out. Features are made with the facts of `hardware` (None: of the GPU
        that a row was timed on)."""
        ok = (table.failure == 0) & features.supported(
            table.problems, table.candidates, table.problem, table.candidate
        )
        rows = np.flatnonzero(ok)
        timed = table.take(rows[np.argsort(table.problem[rows], kind="stable")])
        x = np.empty((len(timed), len(features.NAMES)), np.float32)
        for gpu, on in timed.rows_by(lambda environment: hardware or environment.hardware):
            x[on] = features.matrix(
                timed.problems, timed.candidates, timed.problem[on], timed.candidate[on], gpu
            )
        return cls(x, np.log(timed.time_us).astype(np.float32), timed.problem)

    def take(self, which: npt.NDArray[np.bool_]) -> Examples:
        """These rows only."""
        heads = None if self.heads is None else self.heads[:, which]
        return Examples(self.x[which], self.log_us[which], self.problem[which], heads)

    @property
    def starts(self) -> npt.NDArray[np.intp]:
        """[problems] the first row of each problem."""
        change = np.flatnonzero(np.diff(self.problem)) + 1
        return np.append(np.zeros(1, np.intp), change)

    @property
    def counts(self) -> npt.NDArray[np.intp]:
        """[problems] the number of rows of each problem."""
        return np.diff(np.append(self.starts, len(self.log_us)))

    def base(self, *, residual: bool) -> Matrix:
        """[n] the log times that a model's answers are added to: with `residual` those of the base
        times, else 0."""
        base: Matrix = self.x[:, features.BASE] * np.float32(math.log(2) if residual else 0)
        return base

    @property
    def gap(self) -> Matrix:
        """[n] log of the time over the problem's best: 0 for the best."""
        best = np.minimum.reduceat(self.log_us, self.starts)
        gap: Matrix = self.log_us - np.repeat(best, self.counts)
        return gap


@dataclass(frozen=True)
class FitProgress:
    """One step of a fit (an epoch, or a round of boosting), on the held-out problems.

    `rmse` is of log time; `efficiency` the geometric mean over problems of the best time over
    the time of the candidate with the least predicted one; `objective` what early stopping
    watches, and `train_objective` the same on the rows that the step was fitted to.
    """

    step: int
    steps: int
    rmse: float
    efficiency: float
    objective: float
    train_objective: float


ProgressCallback = Callable[[FitProgress], None]


class CheckpointError(TrainingError):
    """A checkpoint is damaged, or belongs to another fit."""


class Checkpoint(Protocol):
    """Where a fit saves its state, so that it can go on after an interruption."""

    def load(self) -> bytes | None:
        """What was saved last; None where there is nothing."""

    def save(self, state: Callable[[], bytes]) -> None:
        """Called after each step. `state` is called only when it is time to save again."""

    def part(self, name: str) -> Checkpoint:
        """Where a further fit of the same model saves its state."""


def pack(tensors: Mapping[str, npt.NDArray[Any]], facts: Any) -> bytes:
    """A checkpoint's bytes: safetensors, in which no code can be; `facts` as JSON."""
    from safetensors.numpy import save

    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    return save({**tensors, _FACTS: text})


def unpack(data: bytes) -> tuple[dict[str, npt.NDArray[Any]], Any]:
    """The inverse of `pack`. Raises CheckpointError where the bytes are damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)
        facts = json.loads(tensors.pop(_FACTS).tobytes())
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"A checkpoint is damaged ({shortened(str(error))}); remove it."
        ) from None
    return tensors, facts


def history_of(steps: Any) -> list[FitProgress]:
    """The progress from its JSON form in a checkpoint, a list of FitProgress's fields for each
    step. Raises CheckpointError where it is anything else."""
    kinds = [int, int, float, float, float, float]
    if not isinstance(steps, list) or not all(
        isinstance(step, list) and [type(value) for value in step] == kinds and step[0] == place
        for place, step in enumerate(steps, 1)
    ):
        raise CheckpointError("A checkpoint does not say how far its fit was; remove it.")
    return [FitProgress(*step) for step in steps]


def efficiency(examples: Examples, predicted: Matrix) -> float:
    """Geometric mean over problems of (best time / time of the candidate predicted fastest)."""
    gap = examples.gap
    chosen = [
        gap[start + int(np.argmin(predicted[start : start + count]))]
        for start, count in zip(examples.starts, examples.counts, strict=True)
    ]
    return float(np.exp(-np.mean(chosen)))


def importance(examples: Examples, focus: float) -> Matrix:
    """[n] weights from 1 for a slow candidate up to 1 + focus for a problem's best, since errors
    near the best decide the choice. What is above 1 falls by a factor of e for each 0.15 of log
    time behind the best."""
    weight: Matrix = 1 + np.float32(focus) * np.exp(-examples.gap / np.float32(0.15))
    return weight


def softmax_by_problem(examples: Examples, logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[n] softmax of `logits` within each problem."""
    starts, counts = examples.starts, examples.counts
    power = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), counts))
    share: npt.NDArray[Any] = power / np.repeat(np.add.reduceat(power, starts), counts)
    return share


def ranking_loss(examples: Examples, predicted: Matrix, temperature: float) -> float:
    """The listwise loss: mean over problems of the cross entropy between softmax(−log time /
    temperature) as measured and as predicted, less the measured one's own entropy (0 where
    the two agree). After ListNet (Cao et al., ICML 2007)."""
    truth = softmax_by_problem(examples, -examples.log_us.astype(np.float64) / temperature)
    guess = softmax_by_problem(examples, -predicted.astype(np.float64) / temperature)
    tiny = 1e-30
    return float(
        np.sum(truth * (np.log(truth + tiny) - np.log(guess + tiny))) / len(examples.starts)
    )
