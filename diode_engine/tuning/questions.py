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
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.splits import held_out_by

# Products of real programs, sizes of networks, and sizes that both seldom have.
SOURCES = (
    "harvest:side=learned", "transformers", "zoo", "log-normal", "widths", "skinny", "attention",
    "odd", "harvest:side=held-out",
)  # fmt: skip
# One of so many problems is held out: more at first, so that few minutes suffice to judge a model.
JUDGED_EVERY = 5
_JUDGED_FIRST, _FIRST_EVERY = 24, 3
MAX_JUDGED = 240  # of all; more would make the figures a little surer and the model worse
RANKED = 600  # problems that are ordered by what their timings would teach


def in_turn(
    learned: Iterable[Problem], judged: Iterable[Problem], *, most_judged: int = MAX_JUDGED
) -> Iterator[Problem]:
    """The problems to learn from, with the problems to judge on spread evenly among them: one in
    JUDGED_EVERY."""
    to_judge = iter(judged)
    count = since = 0
    for problem in learned:
        yield problem
        since += 1
        every = _FIRST_EVERY if count < _JUDGED_FIRST else JUDGED_EVERY
        if since == every - 1 and count < most_judged:
            since, count = 0, count + 1
            yield from islice(to_judge, 1)


def parted(problems: Iterable[Problem], by: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    """(problems that are not held out in any way, problems that are held out in one of the ways
    `by`; see splits.split).

    A model that is tuned may be older than one of the ways. A problem that is held out only in such
    a way is in neither list: it is not learned, and the model is not judged on it.
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
    """How much slower, in log time and by its own prediction, each member finds the candidate that
    the members choose together than its own best: the mean over the members. 0 where the model
    predicts nothing."""
    space = exhaustive_space(problem, torch)  # the same one for many problems, so encoded once
    answers = model.predict_members_us(problem, space)[:, fits(problem, space, hardware)]
    log_us: npt.NDArray[np.float64] = np.log(answers[:, ~np.isnan(answers).any(axis=0)])
    if not log_us.size:
        return 0.0
    chosen = int(np.argmin(log_us.mean(axis=0)))
    return float(np.mean(log_us[:, chosen] - log_us.min(axis=1)))
