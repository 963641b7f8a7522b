"""A training as a run of the store: its timings, its progress, its curves and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine import paths
from diode_engine.collect.gpu_state import GpuWatch
from diode_engine.collect.progress import MachineGpus
from diode_engine.core.table import TimingTable
from diode_engine.errors import NothingError
from diode_engine.models.fit_confidence import MIN_CASES
from diode_engine.models.fitting import FitProgress
from diode_engine.models.manifest import Data
from diode_engine.runs import Job
from diode_engine.store.datasets.key import dataset_key
from diode_engine.store.transfer import read_datasets
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.search import Trial, search
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.train import Trained, split_timings, train
from diode_engine.training.trainable_rows import trainable_rows
from diode_engine.training.training_progress import TrainingProgress, planned_fits, planned_trials

if TYPE_CHECKING:
    from diode_engine.store import Store

WRITE_SECONDS = 1.0  # between two writes of the progress and the curves to the store


def train_from_store(
    store: Store,
    request: TrainingRequest | None = None,
    *,
    report: FitCallback = lambda label, progress: None,
    report_trial: Callable[[Trial], None] = lambda trial: None,
    keep: Callable[[TimingTable], TimingTable] = lambda table: table,
    fits: FitExecutor = IN_THIS_PROCESS,
) -> Trained:
    """`train` as a run of kind train in the store. The run shows the progress and keeps the curves
    (`<member>/log_rmse`, `/efficiency`, `/objective`, `/train_objective` by epoch or round, and
    `search/efficiency` by trial) and the result.

    A training that was interrupted continues from its checkpoints, in a folder beside the store,
    when the same command runs again. `report_trial` is called with each trial of a search. `keep`
    selects, from the timings that were read, those that the training uses.
    """
    r = request or TrainingRequest()
    table, origin = _timings(store, r)
    split = split_timings(keep(table), r)  # what it refuses leaves no run to resume
    with Job(store, "train", r.spec()) as job:
        run = _TrainingRun(store, job)
        checkpoints = Checkpoints(paths.beside(store.location, "-checkpoints"))
        trials = planned_trials(r.family, r.trials)
        planned = planned_fits(
            r.family,
            tuned=r.base is not None,
            everything=r.everything,
            confidence=split.learned.count_problems() >= MIN_CASES,
        )
        run.whole = TrainingProgress({**trials, **planned})
        if r.trials:
            found = run.search(split.learned, r, report, report_trial, fits)
            r = replace(r, settings=found)
            for label in trials:  # a trial that was interrupted has left its number unused
                run.whole.record(label, None)
        trained = train(
            split, r, origin, report=run.reporting(report), begin_phase=run.begin_phase,
            checkpoints=checkpoints, fits=fits,
        )  # fmt: skip
        run.finish(trained, r.settings)
    return trained


def _timings(store: Store, r: TrainingRequest) -> tuple[TimingTable, Data]:
    """The timings that the model learns from, and where they came from: dataset files, and runs of
    the store."""
    if r.datasets:
        table = read_datasets(r.datasets, r.query)
        names = tuple(path.name for path in r.datasets)
        return table, Data(datasets=(dataset_key(table),), files=names)
    table = store.read(r.query)
    if r.query and not len(table):
        raise NothingError(f"The query {r.query!r} finds no problem in the store {store.location}.")
    environments = trainable_rows(table, r.hardware).used_environments
    runs = store.contributors(environments, r.query)
    return table, Data(
        datasets=tuple(run.key for run in runs if run.key is not None),
        runs=tuple(f"{run.kind} {run.id}" for run in runs),
        files=tuple(
            Path(run.spec["file"]).name
            for run in runs
            if run.kind == "import" and "file" in run.spec
        ),
    )


class _TrainingRun:
    """Writes to a training's run: its progress, its curves, and its result."""

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._job = job
        self._written = time.monotonic()
        self.whole = TrainingProgress({})  # of the fits that follow
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._gpus = MachineGpus(GpuWatch.open())
        job.ending = self._write_points

    @property
    def id(self) -> int:
        return self._job.id

    def reporting(self, report: FitCallback, *, curves: bool = True) -> FitCallback:
        """Calls `report` and, now and then, writes to the store; raises KeyboardInterrupt where
        somebody has asked the run to stop."""

        def record(label: str, progress: FitProgress | None) -> None:
            self._job.check()
            report(label, progress)
            self.whole.record(label, progress)
            if progress is None:
                return
            if curves:
                for name in ("log_rmse", "efficiency", "objective", "train_objective"):
                    value = progress.rmse if name == "log_rmse" else getattr(progress, name)
                    self._points.setdefault(f"{label}/{name}", []).append((progress.step, value))
            if time.monotonic() - self._written >= WRITE_SECONDS:
                self._written = time.monotonic()
                of_fit = {
                    "member": label, "step": progress.step, "steps": progress.steps,
                    "log_rmse": progress.rmse, "efficiency": progress.efficiency,
                }  # fmt: skip
                self._tell({**of_fit, **self.whole.to_dict()})
                self._write_points()

        return record

    def search(
        self, learned: TimingTable, r: TrainingRequest, report: FitCallback,
        report_trial: Callable[[Trial], None], fits: FitExecutor,
    ) -> TrainingSettings:  # fmt: skip
        """Return the best settings that a search on these rows finds."""

        def trial_ended(trial: Trial) -> None:
            if trial.efficiency is not None:
                point = trial.number, trial.efficiency
                self._store.add_points(self.id, "search/efficiency", [point])
            report_trial(trial)

        storage = paths.beside(self._store.location, "-search.db")
        storage.parent.mkdir(parents=True, exist_ok=True)
        return search(
            learned, r.family, r.trials, storage,
            seed=r.seed, settings=r.settings, report=self.reporting(report, curves=False),
            report_trial=trial_ended, fits=fits,
        )  # fmt: skip

    def begin_phase(self, what: str) -> None:
        """Write what is done besides the fits."""
        self._job.check()
        self._tell({**self.whole.to_dict(), "doing": what})

    def _tell(self, progress: Mapping[str, Any]) -> None:
        self._job.tell({**progress, "gpus": self._gpus.to_dict()})

    def finish(self, trained: Trained, settings: TrainingSettings) -> None:
        self._store.set_result(self.id, {**trained.to_dict(), "settings": settings.to_dict()})
        self._job.message = f"registered as {trained.model.reference}"

    def _write_points(self) -> None:
        for series, points in self._points.items():
            self._store.add_points(self.id, series, points)
        self._points = {}
