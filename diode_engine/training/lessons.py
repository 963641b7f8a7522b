"""Lessons: a large model's answers, as examples for a small network (its student).

The problems of lessons need no timings: the teacher predicts the time of each candidate, on the
problems with timings and on many drawn ones. So the small network learns the teacher's predictions
between the measured points, and also the measured times themselves.

Fine-tuning is the same with a user's timings: these are learned as measured, and everywhere else
the network learns what the model predicted before (after Li and Hoiem, "Learning without
Forgetting", ECCV 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from diode_engine import features
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Candidate, Problem
from diode_engine.core.resources import fits, many_loads
from diode_engine.models.blas import one_thread
from diode_engine.models.coverage import Coverage, kernel, op_type
from diode_engine.models.fitting import Examples
from diode_engine.models.members import answers_of
from diode_engine.models.neighbours import distances, places
from diode_engine.models.protocol import Matrix, TimingModel, mean_answer
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.sources import mixed

_ASKED = 700  # candidates of a problem that the teacher is asked about, drawn
_BEST = 64  # of these that become lessons because the teacher finds them fastest
_OTHERS = 192  # of these that become lessons by chance
_WATCHED = 20  # one problem in this many is watched by early stopping
# Two problems are alike if they are nearer than this (neighbours.distances), for example less than
# two factors of two apart in a size. Then the times of one say much about the other.
_LIKE = 2.0


def drawn_problems(coverage: Coverage, count: int, *, seed: int) -> list[Problem]:
    """`count` problems of the types and ops that a model covers, drawn as collections draw them."""
    covered = coverage.known_op_types
    known = (p for p in mixed(4 * max(count, 0), seed) if op_type(p) in covered)
    return list(islice(known, max(count, 0)))


def far_from(problems: Iterable[Problem], timed: Sequence[Problem]) -> list[Problem]:
    """The problems that are not like a timed one. About those that are, the timings say more than a
    model that has not seen the timings."""
    there = places(timed)
    return [p for p in problems if distances(p, there).min() >= _LIKE]


def lessons(
    teacher: Sequence[TimingModel],
    coverage: Coverage,
    hardware: Hardware,
    problems: Iterable[Problem],
    *,
    torch: str = "",
    seed: int = 0,
    feature_set: features.FeatureSet = features.CURRENT,
) -> Examples:
    """The teacher's predictions for these problems, of the candidates that this version of torch
    has and the teacher covers: those that it finds fastest, the library's, and some others. `heads`
    has its members' predictions."""
    rng = np.random.default_rng(seed)
    kernels = frozenset(coverage.kernels)
    x: list[Matrix] = []
    heads: list[Matrix] = []
    for problem in problems:
        space = exhaustive_space(problem, torch)
        each = np.arange(len(space))
        many = many_loads((problem,), space, np.zeros_like(each), each)
        known = [
            kernel(problem.op, c.template, many=bool(m)) in kernels
            for c, m in zip(space, many, strict=True)
        ]
        places = np.flatnonzero(fits(problem, space, hardware) & known)
        if len(places) > _ASKED:
            libraries = [i for i in places if space[i].is_extern]
            drawn = rng.choice(places, _ASKED, replace=False)
            places = np.union1d(np.array(libraries, np.intp), drawn)
        if not len(places):
            continue
        rows = _rows(problem, [space[i] for i in places], hardware, feature_set)
        with one_thread():  # a problem's rows are too few for the cores to share
            answers = answers_of(teacher, rows)
        best = np.argsort(answers.mean(axis=0), kind="stable")[:_BEST]
        others = rng.choice(len(rows), min(len(rows), _OTHERS), replace=False)
        externs = np.flatnonzero(rows[:, feature_set.names.index("aten")] > 0)
        kept = np.unique(np.concatenate([best, others, externs]))
        x.append(rows[kept])
        heads.append(answers[:, kept])
    return _lessons(x, heads, feature_set)


def _rows(
    problem: Problem,
    candidates: Sequence[Candidate],
    hardware: Hardware,
    feature_set: features.FeatureSet,
) -> Matrix:
    n = len(candidates)
    return feature_set.matrix((problem,), candidates, np.zeros(n, np.intp), np.arange(n), hardware)


def _lessons(x: list[Matrix], heads: list[Matrix], feature_set: features.FeatureSet) -> Examples:
    together = np.concatenate(heads, axis=1)
    problem = np.repeat(np.arange(len(x)), [len(rows) for rows in x])
    return Examples(np.concatenate(x), mean_answer(together), problem, together, feature_set)


def with_timings(taught: Examples, teacher: Sequence[TimingModel], timed: Examples) -> Examples:
    """The lessons together with the measured problems, which are repeated so that they are about
    half of all. For a measured problem, the heads are the teacher's members' answers, shifted so
    that their mean is the measured log time."""
    times = max(1, round(len(taught.starts) / len(timed.starts)))
    first = int(taught.problem.max()) + 1
    _, place = np.unique(timed.problem, return_inverse=True)
    problems = int(place.max()) + 1
    answers = answers_of(teacher, timed.x)
    heads = answers - answers.mean(axis=0) + timed.log_us
    assert taught.heads is not None
    return Examples(
        np.concatenate([taught.x, *[timed.x] * times]),
        np.concatenate([taught.log_us, *[timed.log_us] * times]),
        np.concatenate([taught.problem, *(first + problems * i + place for i in range(times))]),
        np.concatenate([taught.heads, np.tile(heads, times)], axis=1),
        taught.feature_set,
    )


def part(taught: Examples) -> tuple[Examples, Examples]:
    """(the lessons to learn, the lessons that early stopping watches), divided by problem."""
    watched = taught.problem % _WATCHED == 0
    return taught.take(~watched), taught.take(watched)
