"""Which problems are timed, and in which order: those that teach the most come early, and those
that the model is judged on are spread evenly among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.problems.splits import held_out_by

# Products of real programs, sizes of networks, and sizes that both seldom have.
SOURCES = (
    "harvest:side=learned", "transformers", "zoo", "log-normal", "widths", "skinny", "attention",
    "odd", "harvest:side=held-out",
)  # fmt: skip
# One of JUDGED_EVERY problems is held out to judge a model on. Until there are _JUDGED_FIRST of
# these, it is one of _FIRST_EVERY, so that a model can be judged after a few minutes.
JUDGED_EVERY = 5
_JUDGED_FIRST, _FIRST_EVERY = 24, 3
MAX_JUDGED = 240  # held-out problems; more make the figures little surer, and the model worse
RANKED = 600  # problems that are ordered by what their timings would teach


def interleave(
    learned: Iterable[Problem], judged: Iterable[Problem], *, most_judged: int = MAX_JUDGED
) -> Iterator[Problem]:
    """The problems to learn from, with the problems to judge on spread evenly among them: one of
    JUDGED_EVERY, at first one of _FIRST_EVERY, and at most `most_judged` in all."""
    to_judge = iter(judged)
    count = since = 0
    for problem in learned:
        yield problem
        since += 1
        every = _FIRST_EVERY if count < _JUDGED_FIRST else JUDGED_EVERY
        if since == every - 1 and count < most_judged:
            since, count = 0, count + 1
            yield from islice(to_judge, 1)


def learned_and_judged(
    problems: Iterable[Problem], by: Collection[str]
) -> tuple[list[Problem], list[Problem]]:
    """(the problems that are not held out in any way, the problems that are held out in one of the
    ways `by`); see splits.split.

    The model that is tuned may be older than one of the ways, and so not in `by`. A problem that is
    held out only in such a way is in neither list: no model learns it or is judged on it.
    """
    learned, judged = [], []
    for problem in problems:
        ways = held_out_by(problem)
        if not ways:
            learned.append(problem)
        elif not set(by).isdisjoint(ways):
            judged.append(problem)
    return learned, judged


def by_disagreement(
    problems: Sequence[Problem], model: Predictor, hardware: Hardware, torch: str
) -> list[Problem]:
    """The first RANKED problems in a new order, then the rest. In the new order every second
    problem is the one on which the model's members disagree most; the others keep their order, so
    that not only unusual problems are learned."""
    asked = problems[:RANKED]
    regrets = [_regret(problem, model, hardware, torch) for problem in asked]
    doubtful = [asked[i] for i in np.argsort(-np.array(regrets), kind="stable")]
    both = chain.from_iterable(zip(doubtful, asked, strict=True))
    return list(dict.fromkeys([*both, *problems]))


def _regret(problem: Problem, model: Predictor, hardware: Hardware, torch: str) -> float:
    """How much the members disagree on a problem, in log time. Each member predicts how much slower
    the candidate is that all members choose together than the member's own best one; this is the
    mean over the members. 0 where the model predicts nothing."""
    space = exhaustive_space(problem, torch)  # the same one for many problems, so encoded once
    answers = model.predict_members_us(problem, space)[:, fits(problem, space, hardware)]
    log_us: npt.NDArray[np.float64] = np.log(answers[:, ~np.isnan(answers).any(axis=0)])
    if not log_us.size:
        return 0.0
    chosen = int(np.argmin(log_us.mean(axis=0)))
    return float(np.mean(log_us[:, chosen] - log_us.min(axis=1)))
