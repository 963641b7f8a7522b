"""The timing of a tuning, in rounds. The model to start from chooses the problems of the first
round. A quick model, made from the timings so far, chooses those of the later rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from diode_engine.collect.executor import Executor
from diode_engine.collect.planning.adviser import Adviser
from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.collect.progress import Progress
from diode_engine.collect.run import collect
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError, TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources import mixed
from diode_engine.problems.splits import HELD_OUT_BY
from diode_engine.registry import ModelVersion
from diode_engine.store import Store
from diode_engine.training.fits import FitExecutor
from diode_engine.training.training_split import TrainingSplit
from diode_engine.tuning import problem_order, quick
from diode_engine.tuning.stages import Stages
from diode_engine.tuning.undisturbed import undisturbed_rows

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
    fits: FitExecutor | None
    quick: Artifact | None = None  # the quick model; None before it is made

    @property
    def held_out_by(self) -> tuple[str, ...]:
        """The ways in which problems are held out, which are those of the model to start from."""
        return HELD_OUT_BY if self.artifact is None else self.artifact.manifest.held_out_by

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
            table = undisturbed_rows(self.store, self.store.read(hardware=name), name, self.torch)
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
            drawn = mixed(DRAWN, seed, problem_order.SOURCES)
            learned, judged = problem_order.learned_and_judged(drawn, self.held_out_by)
            if guide is not None:
                learned = problem_order.by_disagreement(learned, guide, self.hardware, self.torch)
            first = [
                PlannedProblem(p, CandidateSelection(OWN_BUDGET, compiles=OWN_COMPILES))
                for p in own
            ]
            rest = [
                PlannedProblem(p, CandidateSelection(BUDGET, compiles=COMPILES))
                for p in problem_order.interleave(learned, judged) if p not in set(own)
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
                adviser=lambda hardware: None if guide is None else Adviser(guide, hardware),
                should_stop=lambda: before + clock() - began >= until,
            )  # fmt: skip
        except CollectionError as error:
            raise CollectionError(
                f"The GPU was lost, or nothing can be timed on it: {error} What was timed is kept: "
                "run the command again to resume."
            ) from error
        counts.seconds = before + clock() - began
        counts.timings = timings + progress.timings
        counts.failures += progress.failures.total()
        counts.out_of_memory += progress.failures[Failure.OUT_OF_MEMORY]
        counts.workers_lost += progress.workers_lost
        counts.throttled += sum(gpu.throttled for gpu in progress.gpus.values())
