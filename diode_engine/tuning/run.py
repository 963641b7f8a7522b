"""A tuning: one run of the store that looks at a GPU, times the problems that teach the most,
trains, and promotes the model if it is better. Its collections and its training are runs of their
own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.collect import gpus as gpu_names
from diode_engine.collect.adviser import Adviser
from diode_engine.collect.executor import Executor
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.collect.progress import Progress
from diode_engine.collect.run import collect
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Failure, Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import (
    CollectionError,
    RegistryError,
    TrainingError,
)
from diode_engine.models.artifact import Artifact, load_artifact
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources import mixed
from diode_engine.problems.splits import HELD_OUT_BY
from diode_engine.registry import Match, ModelVersion
from diode_engine.runs import Job
from diode_engine.store import RunState, Store
from diode_engine.training.fits import FitExecutor
from diode_engine.training.run import TrainingRequest, train_from_store
from diode_engine.training.train import Trained
from diode_engine.training.training_split import TrainingSplit
from diode_engine.tuning import page, questions, quick
from diode_engine.tuning.undisturbed import disturbed, in_use, throttled
from diode_engine.validation import evaluate
from diode_engine.validation.gate import GateVerdict, promote
from diode_engine.validation.report import ChooserRow

COLLECTED = 0.7  # of the minutes; the rest is for training and judging
GUIDED = 0.5  # of this, what is left when a quick model takes over the choice
MIN_ROUND_SECONDS = 5.0  # a shorter collection would end before its workers have begun
DRAWN = 1500  # problems of a round; time ends most rounds before they are through
BUDGET, COMPILES = 64, 4  # candidates of a problem, and kernels compiled for it alone
OWN_BUDGET, OWN_COMPILES = 192, 32  # of a program's own products
TELL_SECONDS = 1.0


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
        return {
            "minutes": self.minutes, "from": self.base, "own": len(self.own) or None,
            "name": self.name, "seed": self.seed, "gpus": list(self.gpus), **self.asked,
        }  # fmt: skip


NONE = "none"
Note = Callable[[str], None]


def state_of(gpu: int) -> GpuState | None:
    """The state of a GPU; None where it is not known. Imports torch."""
    watch = GpuWatch.open()
    if watch is None:
        return None
    watch.add(gpu, gpu_names.name_of(gpu))
    return watch.state(gpu)


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning; `document` is the run's result, with its page."""

    run: int
    model: ModelVersion
    promoted: bool
    document: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.document)


def tune(
    store: Store,
    request: TuneRequest,
    hardware: Hardware,
    torch: str,
    *,
    executor: Callable[[], Executor],
    capture: Callable[[], Sequence[Problem]] | None = None,
    look: Callable[[int], GpuState | None] = state_of,
    note: Note = lambda sentence: None,
    report: Callable[[Mapping[str, Any]], None] = lambda progress: None,
    clock: Callable[[], float] = time.monotonic,
    fits: FitExecutor | None = None,
) -> Tuned:
    """Tunes a model to this kind of GPU, for this version of torch, as a run of kind tune. Where
    the same tuning was interrupted before, the time that it spent on timing counts, and the call
    continues there.

    `executor` makes the executor that times kernels, anew for each round. `capture` gives more of a
    program's own products. `look` gives the state of a GPU before anything of this process runs on
    it. `report` is called with the run's progress. `fits` makes the fits that can be made side by
    side; None: in this process.

    Raises CollectionError where kernels cannot be timed on this kind of GPU, or the GPU is lost;
    TrainingError where there are too few timings; ModelError and RegistryError where there is no
    such model to start from. What was timed stays in the store.
    """
    if hardware.backend != "cuda":
        raise CollectionError(
            f"{hardware.name} cannot be tuned for: kernels are timed on NVIDIA GPUs only."
        )
    before = registry.best_for(hardware)
    base = _base(request, hardware, before)
    earlier = _seconds_timed(store, request.spec())
    with Job(
        store, "tune", request.spec(),
        when_cancelled="stopped by the user; the same command goes on",
    ) as job:  # fmt: skip
        run = _Tuning(
            store, job, request, hardware, torch, base, before, earlier, executor, note, report,
            clock, fits,
        )  # fmt: skip
        job.ending = lambda: run.tell(force=True)
        tuned = run.whole(capture, look)
        store.set_result(job.id, tuned.to_dict())
        job.message = _sentence(tuned)
        return tuned


def _base(request: TuneRequest, hardware: Hardware, before: Match | None) -> ModelVersion | None:
    if request.base == NONE:
        return None
    if request.base is not None:
        return registry.resolve_for(request.base, hardware.name)
    return None if before is None else before.model


def _seconds_timed(store: Store, spec: Mapping[str, Any]) -> float:
    """How long earlier runs of this tuning have timed since the last one that was done."""
    seconds = 0.0
    for run in store.runs():
        if run.kind == "tune" and dict(run.spec) == dict(spec):
            told = (run.progress or {}).get("timing_seconds", 0.0)
            seconds = 0.0 if run.state is RunState.DONE else max(seconds, float(told))
    return seconds


def _sentence(tuned: Tuned) -> str:
    taken = "is taken from now on" if tuned.promoted else "was refused by the gate"
    return f"registered as {tuned.model.reference}, which {taken}"


class _Tuning:
    """One tuning in progress."""

    def __init__(
        self,
        store: Store,
        job: Job,
        request: TuneRequest,
        hardware: Hardware,
        torch: str,
        base: ModelVersion | None,
        before: Match | None,
        earlier: float,
        executor: Callable[[], Executor],
        note: Note,
        report: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float],
        fits: FitExecutor | None,
    ) -> None:
        self._clock = clock
        self._fits = fits
        self._store, self._job, self._request = store, job, request
        self._hardware, self._torch = hardware, torch
        self._base, self._before = base, before
        self._artifact: Artifact | None = None if base is None else load_artifact(base.folder)
        self._by = HELD_OUT_BY if self._artifact is None else self._artifact.manifest.held_out_by
        self._executor, self._note, self._report = executor, note, report
        self._began = self._clock()
        self._earlier = earlier
        self._timed = earlier  # seconds
        self._timings = self._failures = self._throttled = self._lost = 0
        self._out_of_memory = 0
        self._disturbances: list[str] = []
        self._stages: list[dict[str, Any]] = []
        self._told = 0.0
        self._most = 0.0  # of the fraction

    # How far it is

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = self._clock()
        self._stages.append({"stage": name, "seconds": 0.0})
        self._note(f"{name[0].upper()}{name[1:]} ...")
        self.tell(force=True)
        try:
            yield
        finally:
            self._stages[-1]["seconds"] = round(self._clock() - began, 1)

    def tell(self, *, force: bool = False) -> None:
        """Writes how far it is, not at every call."""
        now = self._clock()
        if not force and now - self._told < TELL_SECONDS:
            return
        self._told = now
        whole = 60 * self._request.minutes
        over = self._earlier + now - self._began
        # Past its minutes it says that little is left, not that nothing is.
        self._most = max(self._most, min(over / whole, 0.99))
        progress = {
            "doing": self._stages[-1]["stage"] if self._stages else "",
            "stage": len(self._stages),
            "fraction": round(self._most, 4),
            "seconds_left": round(max(whole - over, 0.01 * whole), 1),
            "timing_seconds": round(self._timed, 1),
            "timings": self._timings,
            "failures": self._failures,
        }
        self._job.tell(progress)
        self._report(progress)

    def _check(self) -> None:
        """As Job.check; it also writes how far the tuning is."""
        self._job.check()
        self.tell()

    # The whole

    def whole(
        self,
        capture: Callable[[], Sequence[Problem]] | None,
        look: Callable[[int], GpuState | None],
    ) -> Tuned:
        own = list(self._request.own)
        if capture is not None:
            with self._stage("seeing which products the program compiles"):
                own += capture()
        self._look(look)
        if self._artifact is None and not quick.has_xgboost():
            self._note("XGBoost is not installed: networks are trained instead of trees.")
        self._time(own)
        with self._stage("training"):
            trained = self._train(everything=bool(own))
        table = self._sound(self._store.read(hardware=self._hardware.name))
        split = TrainingSplit.of(table, self._hardware.name, self._by)
        with self._stage("judging it"):
            rows = self._rows(trained, split, seen=bool(own))
            verdict, why_not = self._promoted(trained.model, table)
        with self._stage("learning from parts of the timings"):
            curve = quick.learning_curve(split, self._artifact, check=self._check, fits=self._fits)
        document = self._document(trained, own, rows, verdict, why_not, curve)
        return Tuned(
            self._job.id, trained.model, document["promoted"],
            {**document, "page": page.rendered(document)},
        )  # fmt: skip

    def _look(self, look: Callable[[int], GpuState | None]) -> None:
        for gpu in self._request.gpus:
            state = look(gpu)
            if (sign := in_use(state)) is not None:
                self._disturbed(
                    f"GPU {gpu} was shared with others when the timing began: {sign}. Timings "
                    "whose launches differ much are left out; what remains may still be too slow."
                )
            if state is not None and state.throttled:
                self._disturbed(
                    f"GPU {gpu} was held back when the timing began ({', '.join(state.held_back)})."
                )

    def _disturbed(self, sentence: str) -> None:
        self._disturbances.append(sentence)
        self._note(sentence)

    # Timing

    def _time(self, own: Sequence[Problem]) -> None:
        whole = 60 * self._request.minutes * COLLECTED
        guide = None if self._artifact is None else Predictor(self._artifact)
        idle = 0
        for number in count():
            until = whole * GUIDED if number == 0 else whole
            if self._timed >= whole - min(MIN_ROUND_SECONDS, 0.1 * whole) or idle == 2:
                return
            if number == 1:
                with self._stage("making a quick model of what is known"):
                    guide = self._guide() or guide
            if self._timed < until:
                timings = self._timings
                self._round(number, own if number == 0 else (), guide, until)
                idle = 0 if self._timings > timings or number == 0 else idle + 1

    def _guide(self) -> Predictor | None:
        """A quick model; None where there are too few timings for one yet."""
        try:
            table = self._sound(self._store.read(hardware=self._hardware.name))
            learned = TrainingSplit.of(table, self._hardware.name, self._by).learned
            return quick.quick_model(learned, self._artifact, check=self._check, fits=self._fits)
        except TrainingError as error:
            self._note(f"No quick model is made: {error}")
            return None

    def _round(
        self, number: int, own: Sequence[Problem], guide: Predictor | None, until: float
    ) -> None:
        what = "the quick model" if number or self._base is None else self._base.reference
        with self._stage("timing" if guide is None else f"timing what {what} is not sure of"):
            seed = self._request.seed + number
            drawn = mixed(DRAWN, seed, questions.SOURCES)
            learned, judged = questions.parted(drawn, self._by)
            if guide is not None:
                learned = questions.by_disagreement(learned, guide, self._hardware, self._torch)
            first = [
                PlannedProblem(p, CandidateSelection(OWN_BUDGET, compiles=OWN_COMPILES))
                for p in own
            ]
            rest = [
                PlannedProblem(p, CandidateSelection(BUDGET, compiles=COMPILES))
                for p in questions.in_turn(learned, judged) if p not in set(own)
            ]  # fmt: skip
            self._timed_until(Plan((*first, *rest)), guide, until, seed)

    def _timed_until(self, plan: Plan, guide: Predictor | None, until: float, seed: int) -> None:
        began, before, timings = self._clock(), self._timed, self._timings

        def told(progress: Progress) -> None:
            self._timed = before + self._clock() - began
            self._timings = timings + progress.timings
            self._check()

        try:
            progress = collect(
                self._store, plan, self._executor(), seed=seed,
                spec={"tune": self._job.id, "problems": len(plan), "seed": seed},
                report=told,
                adviser=lambda hardware: None if guide is None else Adviser(guide, hardware),
                over=lambda: before + self._clock() - began >= until,
            )  # fmt: skip
        except CollectionError as error:
            raise CollectionError(
                f"The GPU was lost, or nothing can be timed on it: {error} What was timed is kept, "
                "and the same command goes on from there."
            ) from error
        self._timed = before + self._clock() - began
        self._timings = timings + progress.timings
        self._failures += progress.failures.total()
        self._out_of_memory += progress.failures[Failure.OUT_OF_MEMORY]
        self._lost += progress.workers_lost
        self._throttled += sum(gpu.throttled for gpu in progress.gpus.values())

    def _sound(self, table: TimingTable) -> TimingTable:
        """The timings on this GPU with this torch that nothing else disturbed."""
        here = [
            e.hardware.is_called(self._hardware.name) and e.torch == self._torch
            for e in table.environments
        ]
        table = table.take(np.array(here, np.bool_)[table.environment])
        return table.take(~(disturbed(table) | throttled(self._store, table)))

    # What comes of it

    def _train(self, *, everything: bool) -> Trained:
        request = TrainingRequest(
            family=quick.family(self._artifact),
            base=self._artifact,
            hardware=self._hardware.name,
            name=self._request.name or ("gemm" if self._artifact is None else None),
            seed=self._request.seed,
            everything=everything,
            settings=quick.settings(self._request.minutes),
        )
        try:
            return train_from_store(
                self._store, request, report=lambda *_: self._check(), keep=self._sound,
                fits=self._fits,
            )  # fmt: skip
        except TrainingError as error:
            left_out = self._left_out()
            raise TrainingError(
                f"{error} What was timed is kept: the same command with more minutes adds to it."
                + (f" {left_out:,} timings were left out: they were disturbed." if left_out else "")
            ) from error

    def _rows(self, trained: Trained, split: TrainingSplit, *, seen: bool) -> list[dict[str, Any]]:
        """What each chooser reaches on the held-out problems, the model first. With `seen` the
        model has learned from these problems, so its figures come from its manifest."""
        model = trained.model
        own, *others = evaluate(split.judged, Predictor.load(model.folder)).rows
        rows = [_told(model) if seen else _figures(model.reference, own)]
        starts = {} if self._base is None else {self._base: "what it started from"}
        if self._before is not None:
            starts.setdefault(self._before.model, "taken before")
        for version, role in starts.items():
            row = evaluate(split.judged, Predictor.load(version.folder)).rows[0]
            made_for = version.manifest.hardware.name
            of = "" if made_for == self._hardware.name else f" of {made_for}"
            rows.append(_figures(f"{version.reference}{of}, {role}", row))
        return [*rows, *(_figures(other.chooser, other) for other in others)]

    def _promoted(
        self, model: ModelVersion, table: TimingTable
    ) -> tuple[GateVerdict | None, str | None]:
        try:
            return promote(model, table, check=self._check), None
        except RegistryError as error:  # somebody has promoted another one meanwhile
            return None, str(error)

    def _document(
        self,
        trained: Trained,
        own: Sequence[Problem],
        rows: list[dict[str, Any]],
        verdict: GateVerdict | None,
        why_not: str | None,
        curve: list[dict[str, float]],
    ) -> dict[str, Any]:
        left_out = self._left_out()
        return {
            "hardware": self._hardware.name,
            "torch": self._torch,
            "minutes": self._request.minutes,
            "seconds": round(self._clock() - self._began, 1),
            "timing_seconds": round(self._timed, 1),
            "from": None if self._base is None else str(self._base.reference),
            "from_hardware": None if self._base is None else self._base.manifest.hardware.name,
            "own": len(own),
            "timings": self._timings,
            "failures": self._failures,
            "out_of_memory": self._out_of_memory,
            "workers_lost": self._lost,
            "throttled": self._throttled,
            "left_out": left_out,
            "disturbances": list(self._disturbances),
            "model": trained.to_dict(),
            "promoted": verdict is not None and verdict.passed,
            "verdict": None if verdict is None else verdict.to_dict(),
            "why_not": why_not if verdict is None else " ".join(verdict.reasons) or None,
            "choosers": rows,
            "curve": curve,
            "stages": list(self._stages),
        }

    def _left_out(self) -> int:
        """Disturbed timings on this GPU, of any run."""
        table = self._store.read(hardware=self._hardware.name)
        return int((disturbed(table) | throttled(self._store, table)).sum())


def _told(model: ModelVersion) -> dict[str, Any]:
    metrics = model.manifest.metrics
    return {
        "chooser": f"{model.reference}, made without these problems",
        "efficiency": metrics["efficiency"],
        "p10": metrics["efficiency_p10"],
        "worst": metrics["efficiency_worst"],
        "first_5": metrics["efficiency_top"].get("5"),
    }


def _figures(name: str, row: ChooserRow) -> dict[str, Any]:
    top = row.top
    return {
        "chooser": name,
        "efficiency": top[1].geomean,
        "p10": top[1].p10,
        "worst": top[1].worst,
        "first_5": top[5].geomean if 5 in top else None,
    }
