"""Distillation labels: a large model's predictions, as examples for a small network (its student).

The problems need no timings: the teacher predicts the time of each candidate, on the problems with
timings and on many drawn ones. So the student learns the teacher's predictions between the measured
points, and also the measured times themselves.

Fine-tuning is the same with a user's timings: these are learned as measured, and everywhere else
the network learns what the model predicted before (after Li and Hoiem, "Learning without
Forgetting", ECCV 2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits, many_loads
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.blas import one_thread
from diode_engine.models.coverage import Coverage, kernel, op_type
from diode_engine.models.fitting import Examples
from diode_engine.models.neighbours import distances, places
from diode_engine.models.protocol import Matrix, TimingModel, answers_of, mean_answer
from diode_engine.problems.sources import mixed
from diode_engine.problems.spaces import exhaustive_space

Indices = npt.NDArray[np.intp]
ProblemOnGpu = tuple[Problem, Hardware]

_PREDICTED = 700  # candidates of a problem that the teacher predicts, drawn
_BEST = 64  # of these that become examples because the teacher finds them fastest
_OTHERS = 192  # of these that become examples by chance
MAX_LABELS = _BEST + _OTHERS  # of a problem, besides the few of libraries' kernels
_WATCHED = 20  # one problem in this many is watched by early stopping
# Two problems are alike if they are nearer than this (neighbours.distances), for example less than
# two factors of two apart in a size. Then the times of one say much about the other.
_LIKE = 2.0


def drawn_problems(coverage: Coverage, count: int, *, seed: int) -> list[Problem]:
    """`count` problems of the types and ops that a model covers, drawn as collections draw them."""
    covered = coverage.op_types
    known = (p for p in mixed(4 * max(count, 0), seed) if op_type(p) in covered)
    return list(islice(known, max(count, 0)))


def problems_to_label(
    table: TimingTable, coverage: Coverage, count: int, *, seed: int
) -> list[ProblemOnGpu]:
    """Return the problems that a teacher labels: those of the timings, on the GPUs that timed them,
    and, where these are fewer than `count`, drawn ones, on each of the GPUs in turn."""
    places, first = np.unique(table.problem, return_index=True)
    gpu = [table.environments[i].hardware for i in table.environment[first]]
    timed = [(table.problems[i], each) for i, each in zip(places, gpu, strict=True)]
    drawn = drawn_problems(coverage, count - len(timed), seed=seed)
    return [*timed, *zip(drawn, cycle(dict.fromkeys(gpu)))]


def problems_unlike(problems: Iterable[Problem], timed: Sequence[Problem]) -> list[Problem]:
    """The problems that are not like a timed one. About those that are, the timings say more than a
    model that has not seen the timings."""
    there = places(timed)
    return [p for p in problems if distances(p, there).min() >= _LIKE]


@dataclass(frozen=True, eq=False)
class CandidatesToLabel:
    """A problem, and its candidates that a teacher can predict: those that this version of torch
    has, the GPU can run and the teacher covers. `libraries` are the places of ATen's."""

    problem: Problem
    candidates: Sequence[Candidate]
    libraries: Indices

    @classmethod
    def make(
        cls, problem: Problem, kernels: Collection[str], hardware: Hardware, torch: str
    ) -> CandidatesToLabel:
        """`kernels` are those that the teacher covers (Coverage.kernels)."""
        space = exhaustive_space(problem, torch)
        each = np.arange(len(space))
        many = many_loads((problem,), space, np.zeros_like(each), each)
        known = [
            kernel(problem.op, c.template, many=bool(m)) in kernels
            for c, m in zip(space, many, strict=True)
        ]
        candidates = [space[i] for i in np.flatnonzero(fits(problem, space, hardware) & known)]
        return cls(
            problem,
            candidates,
            np.array([i for i, c in enumerate(candidates) if c.is_extern], np.intp),
        )

    def label(
        self, drawn: Drawn, teacher: Sequence[TimingModel], hardware: Hardware
    ) -> tuple[Matrix, Matrix]:
        """Return the feature rows [n, F] of the examples, and the predictions [m, n] of the
        teacher's members."""
        candidates = [self.candidates[i] for i in drawn.predicted]
        each = np.arange(len(candidates))
        rows = features.matrix((self.problem,), candidates, 0 * each, each, hardware)
        with one_thread():  # a problem's rows are too few for the cores to share
            answers = answers_of(teacher, rows)
        best = np.argsort(answers.mean(axis=0), kind="stable")[:_BEST]
        externs = np.flatnonzero(rows[:, features.NAMES.index("aten")] > 0)
        kept = np.unique(np.concatenate([best, drawn.others, externs]))
        return rows[kept], answers[:, kept]


@dataclass(frozen=True, eq=False)
class Drawn:
    """What is drawn for a problem: the places among its candidates that the teacher predicts, and
    the places among these that become examples however good they are."""

    predicted: Indices
    others: Indices


def draw_examples(rng: np.random.Generator, candidates: int, libraries: Indices) -> Drawn | None:
    """Return the draw for a problem; None where it has no candidates. It needs no more of a problem
    than how many candidates it has and which of them are libraries', so the labels may be made in
    other processes."""
    if not candidates:
        return None
    predicted = np.arange(candidates)
    if candidates > _PREDICTED:
        predicted = np.union1d(libraries, rng.choice(candidates, _PREDICTED, replace=False))
    others = rng.choice(len(predicted), min(len(predicted), _OTHERS), replace=False)
    return Drawn(predicted, others)


def distillation_labels(
    teacher: Sequence[TimingModel],
    coverage: Coverage,
    problems: Iterable[ProblemOnGpu],
    *,
    torch: str = "",
    seed: int = 0,
) -> Examples:
    """Return the teacher's predictions for these problems, of the candidates that this version of
    torch has and the teacher covers: those that it finds fastest, the library's, and some others.
    `heads` has its members' predictions."""
    rng = np.random.default_rng(seed)
    kernels = frozenset(coverage.kernels)
    made: list[tuple[Matrix, Matrix]] = []
    for problem, hardware in problems:
        there = CandidatesToLabel.make(problem, kernels, hardware, torch)
        drawn = draw_examples(rng, len(there.candidates), there.libraries)
        if drawn is not None:
            made.append(there.label(drawn, teacher, hardware))
    x, heads = zip(*made, strict=True) if made else ((), ())
    return join_labels(x, heads, [len(rows) for rows in x])


def join_labels(x: Sequence[Matrix], heads: Sequence[Matrix], counts: Sequence[int]) -> Examples:
    """Return the examples of labels that were made in parts; `counts` is how many each problem has.
    Raises TrainingError where there are none."""
    if not counts:
        raise TrainingError("The model to learn from covers none of the problems' candidates.")
    together = np.concatenate(heads, axis=1)
    problem = np.repeat(np.arange(len(counts)), counts)
    return Examples(np.concatenate(x), mean_answer(together), problem, together)


def with_timings(labelled: Examples, answers: Matrix, timed: Examples) -> Examples:
    """Return the labels together with the measured problems, which are repeated so that they are
    about half of all. For a measured problem, the heads are the teacher's members' answers
    (`answers`, [members, rows of timed]), shifted so that their mean is the measured log time."""
    times = max(1, round(len(labelled.starts) / len(timed.starts)))
    first = int(labelled.problem.max()) + 1
    _, place = np.unique(timed.problem, return_inverse=True)
    problems = int(place.max()) + 1
    heads = answers - answers.mean(axis=0) + timed.log_us
    assert labelled.heads is not None
    return Examples(
        np.concatenate([labelled.x, *[timed.x] * times]),
        np.concatenate([labelled.log_us, *[timed.log_us] * times]),
        np.concatenate([labelled.problem, *(first + problems * i + place for i in range(times))]),
        np.concatenate([labelled.heads, np.tile(heads, times)], axis=1),
    )


def split_labels(labelled: Examples) -> tuple[Examples, Examples]:
    """Return (the labels to learn, the labels that early stopping watches), divided by problem."""
    watched = labelled.problem % _WATCHED == 0
    return labelled.take(~watched), labelled.take(watched)
