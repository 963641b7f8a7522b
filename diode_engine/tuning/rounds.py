"""The timing of a tuning, in rounds, and the order of the problems: those that teach the most come
early, and those that the model is judged on are spread evenly among them. The model to start from
chooses the problems of the first round. A quick model, made from the timings so far, chooses those
of the later rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.collect.executor import Executor
from diode_engine.collect.planning.adviser import advise
from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.collect.progress import Progress
from diode_engine.collect.run import collect
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError, TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources import mixed
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.problems.splits import HELD_OUT_BY, held_out_by
from diode_engine.registry import ModelVersion
from diode_engine.store import Store
from diode_engine.training.fits import FitExecutor
from diode_engine.training.trainable_rows import TrainingSplit
from diode_engine.tuning import quick
from diode_engine.tuning.stages import Stages
from diode_engine.tuning.undisturbed import undisturbed_rows

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


def interleave(learned: Iterable[Problem], judged: Iterable[Problem]) -> Iterator[Problem]:
    """The problems to learn from, with the problems to judge on spread evenly among them: one of
    JUDGED_EVERY, at first one of _FIRST_EVERY, and at most MAX_JUDGED in all."""
    to_judge = iter(judged)
    count = since = 0
    for problem in learned:
        yield problem
        since += 1
        every = _FIRST_EVERY if count < _JUDGED_FIRST else JUDGED_EVERY
        if since == every - 1 and count < MAX_JUDGED:
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


NONE = "none"  # of a base: no model to start from
COLLECTED = 0.7  # the share of the minutes for timing; the rest is for training and judging
GUIDED = 0.5  # the share of this timing after which a quick model chooses the problems
MIN_ROUND_SECONDS = 5.0  # a shorter collection would end before its workers have begun
DRAWN = 1500  # problems of a round; most rounds end by time before all of them are timed
BUDGET, COMPILES = 64, 4  # candidates of a problem, and kernels compiled for it alone
OWN_BUDGET, OWN_COMPILES = 192, 32  # of a program's own products


@dataclass(frozen=True)
class TuneRequest:
    """What is asked of a tuning. `base` is the model to start from: a reference, NONE, or None for
    the model that is taken for the GPU now. `own` are a program's products; they are timed first
    and with more candidates, and the registered model has learned from all of them. `gpus` are
    those of this machine; none, where those of a cluster are used."""

    minutes: float = 10.0
    base: str | None = None
    own: tuple[Problem, ...] = ()
    name: str | None = None
    seed: int = 0
    gpus: tuple[int, ...] = (0,)
    asked: Mapping[str, Any] = field(default_factory=dict)  # more of the run's spec

    def spec(self) -> dict[str, Any]:
        """The request as the run's spec."""
        return {
            "minutes": self.minutes, "from": self.base, "own": len(self.own) or None,
            "name": self.name, "seed": self.seed, "gpus": list(self.gpus), **self.asked,
        }  # fmt: skip


@dataclass
class Rounds:
    """The rounds of one tuning, which is the run with this id."""

    store: Store
    id: int
    request: TuneRequest
    hardware: Hardware
    torch: str
    base: ModelVersion | None  # the version of the model to start from
    artifact: Artifact | None  # and its content
    executor: Callable[[], Executor]
    stages: Stages
    fits: FitExecutor
    quick: Artifact | None = None  # the quick model; None before it is made

    @property
    def held_out_by(self) -> tuple[str, ...]:
        """The ways in which problems are held out, which are those of the model to start from."""
        return HELD_OUT_BY if self.artifact is None else self.artifact.manifest.held_out_by

    def undisturbed(self, table: TimingTable) -> TimingTable:
        """The timings of the table on this GPU and torch that were not disturbed."""
        return undisturbed_rows(self.store, table, self.hardware.name, self.torch)

    def run(self, own: Sequence[Problem]) -> None:
        """Times kernels until the time for it is over. `own` are a program's own products, which
        come first."""
        whole = 60 * self.request.minutes * COLLECTED
        guide = None if self.artifact is None else Predictor(self.artifact, self.hardware)
        idle = 0
        for number in count():
            until = whole * GUIDED if number == 0 else whole
            if (
                self.stages.counts.seconds >= whole - min(MIN_ROUND_SECONDS, 0.1 * whole)
                or idle == 2
            ):
                return
            if number == 1:
                with self.stages.stage("making a quick model of what is known"):
                    self.quick = self._quick_model()
                guide = guide if self.quick is None else Predictor(self.quick)
            if self.stages.counts.seconds < until:
                timings = self.stages.counts.timings
                self._round(number, own if number == 0 else (), guide, until)
                idle = 0 if self.stages.counts.timings > timings or number == 0 else idle + 1

    def _quick_model(self) -> Artifact | None:
        """A quick model; None where there are too few timings for one yet."""
        name = self.hardware.name
        try:
            table = self.undisturbed(self.store.read(hardware=name))
            learned = TrainingSplit.make(table, name, self.held_out_by).learned
            return quick.quick_model(
                learned, self.artifact, check=self.stages.check, fits=self.fits
            )
        except TrainingError as error:
            self.stages.note(f"No quick model is made: {error}")
            return None

    def _round(
        self, number: int, own: Sequence[Problem], guide: Predictor | None, until: float
    ) -> None:
        what = "the quick model" if number or self.base is None else self.base.reference
        with self.stages.stage("timing" if guide is None else f"timing what {what} is not sure of"):
            seed = self.request.seed + number
            drawn = mixed(DRAWN, seed, SOURCES)
            learned, judged = learned_and_judged(drawn, self.held_out_by)
            if guide is not None:
                learned = by_disagreement(learned, guide, self.hardware, self.torch)
            first = [
                PlannedProblem(p, CandidateSelection(OWN_BUDGET, compiles=OWN_COMPILES))
                for p in own
            ]
            rest = [
                PlannedProblem(p, CandidateSelection(BUDGET, compiles=COMPILES))
                for p in interleave(learned, judged) if p not in set(own)
            ]  # fmt: skip
            self._timed_until(Plan((*first, *rest)), guide, until, seed)

    def _timed_until(self, plan: Plan, guide: Predictor | None, until: float, seed: int) -> None:
        clock, counts = self.stages.clock, self.stages.counts
        began, before, timings = clock(), counts.seconds, counts.timings

        def record(progress: Progress) -> None:
            counts.seconds = before + clock() - began
            counts.timings = timings + progress.timings
            self.stages.check()

        try:
            progress = collect(
                self.store, plan, self.executor(), seed=seed,
                spec={"tune": self.id, "problems": len(plan), "seed": seed},
                report=record,
                adviser=lambda device: None if guide is None else partial(advise, guide, device),
                should_stop=lambda: before + clock() - began >= until,
            )  # fmt: skip
        except CollectionError as error:
            raise CollectionError(
                f"The GPU was lost, or nothing can be timed on it: {error} What was timed is kept: "
                "run the command again to resume."
            ) from error
        counts.failures += progress.failures.total()
        counts.out_of_memory += progress.failures[Failure.OUT_OF_MEMORY]
        counts.workers_lost += progress.workers_lost
        counts.throttled += sum(gpu.throttled for gpu in progress.gpus.values())
