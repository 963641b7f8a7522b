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
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

from diode_engine import features
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
from diode_engine.training.fit_pool import Arrays

ProblemOnGpu = tuple[Problem, Hardware]
Labels = tuple[Matrix, Matrix, npt.NDArray[np.intp]]  # see `make_labels`

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
    kernels = frozenset(coverage.kernels)
    return join_labels([make_labels(teacher, kernels, problems, torch=torch, seed=seed)])


def make_labels(
    teacher: Sequence[TimingModel],
    kernels: Collection[str],
    problems: Iterable[ProblemOnGpu],
    *,
    torch: str,
    seed: int | tuple[int, ...],
) -> Labels:
    """Return the labels of these problems as arrays: the feature rows x [n, F], the answers of the
    teacher's members [m, n], and the number of rows of each problem that has any. `kernels` are
    those that the teacher covers (Coverage.kernels)."""
    rng = np.random.default_rng(seed)
    found = (_label(problem, gpu, teacher, kernels, torch, rng) for problem, gpu in problems)
    made = [labels for labels in found if labels is not None]
    if not made:
        return np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.intp)
    x, heads = zip(*made, strict=True)
    counts = np.array([len(rows) for rows in x], np.intp)
    return np.concatenate(x), np.concatenate(heads, axis=1), counts


def _label(
    problem: Problem, hardware: Hardware, teacher: Sequence[TimingModel],
    kernels: Collection[str], torch: str, rng: np.random.Generator,
) -> tuple[Matrix, Matrix] | None:  # fmt: skip
    """Return the feature rows [n, F] of a problem's examples, and the answers [m, n]; None where
    the teacher can predict none of the candidates that this version of torch has and the GPU can
    run."""
    space = exhaustive_space(problem, torch)
    each = np.arange(len(space))
    many = many_loads((problem,), space, np.zeros_like(each), each)
    known = [
        kernel(problem.op, c.template, many=bool(m)) in kernels
        for c, m in zip(space, many, strict=True)
    ]
    places = np.flatnonzero(fits(problem, space, hardware) & known)
    if not len(places):
        return None
    if len(places) > _PREDICTED:
        libraries = np.array([space[place].is_extern for place in places], np.bool_)
        drawn = rng.choice(places, _PREDICTED, replace=False)
        places = np.union1d(places[libraries], drawn)
    others = rng.choice(len(places), min(len(places), _OTHERS), replace=False)
    rows = features.matrix((problem,), space, np.zeros_like(places), places, hardware)
    with one_thread():  # a problem's rows are too few for the cores to share
        answers = answers_of(teacher, rows)
    best = np.argsort(answers.mean(axis=0), kind="stable")[:_BEST]
    externs = np.flatnonzero(rows[:, features.NAMES.index("aten")] > 0)
    kept = np.unique(np.concatenate([best, others, externs]))
    return rows[kept], answers[:, kept]


def join_labels(parts: Iterable[Arrays]) -> Examples:
    """Return the examples of labels that were made in parts. Raises TrainingError where there are
    none."""
    made = [part for part in parts if len(part[2])]
    if not made:
        raise TrainingError("The model to learn from covers none of the problems' candidates.")
    x, heads, counts = zip(*made, strict=True)
    together, of_problem = np.concatenate(heads, axis=1), np.concatenate(counts)
    problem = np.repeat(np.arange(len(of_problem)), of_problem)
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
