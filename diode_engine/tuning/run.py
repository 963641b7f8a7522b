"""A tuning: one run of the store that looks at a GPU, times the problems that teach the most,
trains, and promotes the model if it is better. Its collections and its training are runs of their
own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from diode_engine import registry
from diode_engine.collect import gpus as gpu_names
from diode_engine.collect.executor import Executor
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import (
    CollectionError,
    RegistryError,
    TrainingError,
)
from diode_engine.models.artifact import load_artifact
from diode_engine.registry import Match, ModelVersion
from diode_engine.runs import Job
from diode_engine.store import RunState, Store
from diode_engine.training.fits import FitExecutor
from diode_engine.training.run import TrainingRequest, train_from_store
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.train import Trained
from diode_engine.training.trainable_rows import TrainingSplit
from diode_engine.tuning import page, quick
from diode_engine.tuning.page import chooser_rows
from diode_engine.tuning.rounds import NONE, Rounds, TuneRequest
from diode_engine.tuning.stages import Counts, Note, Stages
from diode_engine.tuning.undisturbed import count_disturbed, in_use, undisturbed_rows
from diode_engine.validation.gate import GateVerdict, promote

JUDGED = 0.05  # the share of the minutes for the judging and the learning curve


def state_of(gpu: int) -> GpuState | None:
    """The state of a GPU; None where it is not known. Imports torch."""
    watch = GpuWatch.open()
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
        """As JSON has it."""
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
    if not hardware.is_supported:
        raise CollectionError(
            f"{hardware.name} cannot be tuned for: kernels are timed on NVIDIA GPUs only."
        )
    before = registry.best_for(hardware)
    base = _base(request, hardware, before)
    earlier = _seconds_timed(store, request.spec())
    with Job(
        store, "tune", request.spec(),
        when_cancelled="stopped by the user; run the command again to resume",
    ) as job:  # fmt: skip
        stages = Stages(job, request.minutes, Counts(earlier), note, report, clock)
        artifact = None if base is None else load_artifact(base.folder)
        rounds = Rounds(
            store, job.id, request, hardware, torch, base, artifact, executor, stages, fits
        )
        job.ending = lambda: stages.tell(force=True)
        tuned = _Tuning(rounds, before).whole(capture, look)
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
    """How many seconds earlier runs of this tuning have spent on timing, since the last run that
    was finished."""
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

    def __init__(self, rounds: Rounds, before: Match | None) -> None:
        self._rounds, self._before = rounds, before
        self._store, self._request, self.stages = rounds.store, rounds.request, rounds.stages
        self._hardware, self._torch = rounds.hardware, rounds.torch
        self._base, self._artifact = rounds.base, rounds.artifact
        self._disturbances: list[str] = []

    def whole(
        self,
        capture: Callable[[], Sequence[Problem]] | None,
        look: Callable[[int], GpuState | None],
    ) -> Tuned:
        own = list(self._request.own)
        if capture is not None:
            with self.stages.stage("capturing the products that the program compiles"):
                own += capture()
        self._look(look)
        if self._artifact is None and not quick.has_xgboost():
            self.stages.note("XGBoost is not installed: networks are trained instead of trees.")
        self._rounds.run(own)
        with self.stages.stage("training"):
            trained = self._train(everything=bool(own))
        table = self._undisturbed(self._store.read(hardware=self._hardware.name))
        split = TrainingSplit.make(table, self._hardware.name, self._rounds.held_out_by)
        with self.stages.stage("judging it"):
            rows = self._rows(trained, split, seen=bool(own))
            verdict, why_not = self._promoted(trained.model, table)
        with self.stages.stage("learning from parts of the timings"):
            curve = quick.learning_curve(
                split, self._artifact, check=self.stages.check, fits=self._rounds.fits
            )
        document = self._document(trained, own, rows, verdict, why_not, curve)
        return Tuned(
            self._rounds.id, trained.model, document["promoted"],
            {**document, "page": page.render_page(document)},
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
                    f"GPU {gpu} was throttled when the timing began ({', '.join(state.held_back)})."
                )

    def _undisturbed(self, table: TimingTable) -> TimingTable:
        return undisturbed_rows(self._store, table, self._hardware.name, self._torch)

    def _disturbed(self, sentence: str) -> None:
        self._disturbances.append(sentence)
        self.stages.note(sentence)

    def _train(self, *, everything: bool) -> Trained:
        request = TrainingRequest(
            family=quick.family(self._artifact),
            base=self._artifact,
            hardware=self._hardware.name,
            name=self._request.name or ("gemm" if self._artifact is None else None),
            seed=self._request.seed,
            everything=everything,
            settings=self._settings(everything),
        )
        try:
            return train_from_store(
                self._store, request, report=lambda *_: self.stages.check(), keep=self._undisturbed,
                fits=self._rounds.fits,
            )  # fmt: skip
        except TrainingError as error:
            left_out = count_disturbed(self._store, self._hardware.name)
            raise TrainingError(
                f"{error} What was timed is kept: run the command again with more minutes, which "
                "adds to it."
                + (f" {left_out:,} timings were left out: they were disturbed." if left_out else "")
            ) from error

    def _settings(self, everything: bool) -> TrainingSettings:
        """The settings of a training that ends in time for the judging. With `everything`, the
        training fits two models."""
        minutes = self._request.minutes
        seconds = self.stages.seconds_left - JUDGED * 60 * minutes
        known = self._rounds.quick
        lesson = (
            None if known is None else quick.seconds_to_label(known, self._torch, self.stages.clock)
        )
        each = seconds / (2 if everything else 1)
        return quick.settings(minutes, self._artifact, each, lesson)

    def _rows(self, trained: Trained, split: TrainingSplit, *, seen: bool) -> list[dict[str, Any]]:
        others = {} if self._base is None else {self._base: "what it started from"}
        if self._before is not None:
            others.setdefault(self._before.model, "taken before")
        return chooser_rows(trained.model, split, others, seen=seen)

    def _promoted(
        self, model: ModelVersion, table: TimingTable
    ) -> tuple[GateVerdict | None, str | None]:
        try:
            return promote(model, table, self._hardware.slug, check=self.stages.check), None
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
        counts = self.stages.counts
        return {
            **asdict(counts),
            "hardware": self._hardware.name,
            "torch": self._torch,
            "minutes": self._request.minutes,
            "seconds": round(self.stages.seconds, 1),
            "timing_seconds": round(counts.seconds, 1),
            "from": None if self._base is None else str(self._base.reference),
            "from_hardware": None
            if self._base is None
            else self._base.manifest.record_for(self._hardware).hardware.name,
            "own": len(own),
            "left_out": count_disturbed(self._store, self._hardware.name),
            "disturbances": list(self._disturbances),
            "model": trained.to_dict(),
            "promoted": verdict is not None and verdict.passed,
            "verdict": None if verdict is None else verdict.to_dict(),
            "why_not": why_not if verdict is None else " ".join(verdict.reasons) or None,
            "choosers": rows,
            "curve": curve,
            "stages": list(self.stages.done),
        }
