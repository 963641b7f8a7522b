"""Which problems are timed, and in which order: those that would teach the most come early, and
those that the model is judged by are spread evenly among them."""

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

# Products of real programs, the sizes of networks, and what few of either have.
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
    """The problems to learn from, with the ones to be judged by among them, evenly: JUDGED_EVERY
    says how many."""
    held = iter(judged)
    count = since = 0
    for problem in learned:
        yield problem
        since += 1
        every = _FIRST_EVERY if count < _JUDGED_FIRST else JUDGED_EVERY
        if since == every - 1 and count < most_judged:
            since, count = 0, count + 1
            yield from islice(held, 1)


def parted(problems: Iterable[Problem], by: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    """(those that are not held out by any way, those that are by one of these; see splits.split).
    A model that is tuned may have been made before one of the ways was: what is held out by such
    a one alone is neither learned nor judged by."""
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
    """The first RANKED problems in an order of which every second one is the one that the model's
    members disagree on most, and the others are as they were: what is learned must not be of odd
    ones alone. The rest follows."""
    asked = problems[:RANKED]
    regrets = [_regret(problem, model, hardware, torch) for problem in asked]
    doubtful = [asked[i] for i in np.argsort(-np.array(regrets), kind="stable")]
    both = chain.from_iterable(zip(doubtful, asked, strict=True))
    return list(dict.fromkeys([*both, *problems]))


def _regret(problem: Problem, model: Predictor, hardware: Hardware, torch: str) -> float:
    """What the members lose in the mean, each by its own word (log time), by what they choose
    together; 0 where the model says nothing."""
    space = exhaustive_space(problem, torch)  # the same one for many problems, so encoded once
    answers = model.predict_members_us(problem, space)[:, fits(problem, space, hardware)]
    log_us: npt.NDArray[np.float64] = np.log(answers[:, ~np.isnan(answers).any(axis=0)])
    if not log_us.size:
        return 0.0
    chosen = int(np.argmin(log_us.mean(axis=0)))
    return float(np.mean(log_us[:, chosen] - log_us.min(axis=1)))
