"""A model from timings: fitted, judged on problems it has not seen, and registered."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine import registry
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import (
    Artifact,
    Coverage,
    Data,
    Manifest,
    check_name,
    save_artifact,
)
from diode_engine.models.fitting import Progress
from diode_engine.models.predictor import Predictor
from diode_engine.runs import Heartbeat, begin
from diode_engine.store.transfer import dataset_key
from diode_engine.table import TimingTable
from diode_engine.training import splits
from diode_engine.training.confidence import learn_confidence, places_of
from diode_engine.training.fit import Report, Settings, fit, learnable, one_environment
from diode_engine.validation import evaluate

if TYPE_CHECKING:
    from diode_engine.store import Store

LEAST_HELD_OUT = 2  # problems to judge a model by
HEARTBEAT_SECONDS = 1.0
_SOURCES = ("collect", "import")  # kinds of runs that bring timings


@dataclass(frozen=True)
class Trained:
    """What a training made. Counts are of what the model was fitted to, with what early
    stopping watched; `left_out` counts successful timings of other hardware or software."""

    model: registry.ModelVersion
    problems: int
    timings: int
    held_out_problems: int
    left_out: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        manifest = self.model.manifest
        return {
            "model": self.model.reference,
            "folder": str(self.model.folder),
            "identity": manifest.identity,
            "family": manifest.family,
            "hardware": manifest.hardware.name,
            "torch": list(manifest.torch),
            "triton": list(manifest.triton),
            "problems": self.problems,
            "timings": self.timings,
            "held_out_problems": self.held_out_problems,
            "left_out": self.left_out,
            "metrics": dict(manifest.metrics),
            "notes": manifest.notes,
            "seconds": round(self.seconds, 1),
        }


def train(
    table: TimingTable,
    *,
    family: str = "ensemble",
    hardware: str | None = None,
    name: str | None = None,
    seed: int = 0,
    everything: bool = False,
    default: bool = False,
    runs: Sequence[str] = (),
    settings: Settings | None = None,
    report: Report = lambda member, progress: None,
) -> Trained:
    """Fits a model of this family for the GPU named `hardware` and registers it as the next
    version of `name` (the family's, if None), with `default` as the one that is taken there.

    Its metrics are those on the held-out problems (`splits.held_out`), which it has not seen;
    how sure it is was learned from the others.
    With `everything` a second model is fitted, to all problems, and registered; the metrics
    remain the first one's, and the notes say so. `runs` are the keys of the runs that the
    timings came from. Raises TrainingError where the timings do not suffice.
    """
    began = time.monotonic()
    name = check_name(name or family)
    one = one_environment(table, hardware)
    usable = learnable(one)
    learned, held_out = splits.split(usable)
    problems = _problems(held_out)
    if problems < LEAST_HELD_OUT:
        raise TrainingError(
            f"Of {_problems(usable)} problems with timings {problems} are held out, which is too "
            f"few to judge a model by ({LEAST_HELD_OUT} are needed): collect or import more."
        )
    members = fit(learned, family, seed=seed, settings=settings, report=report)
    confidence = learn_confidence(learned, family, seed=seed, settings=settings, report=report)
    # Failed candidates take part: whoever chooses one has chosen badly.
    judged = splits.split(one)[1]
    manifest = _manifest(name, family, learned, runs)
    metrics = _metrics(Artifact(manifest, members, confidence), judged)
    notes = f"The metrics are on {problems} problems that this model has not seen."
    if everything:
        learned = usable
        members = fit(learned, family, seed=seed, settings=settings, report=report)
        manifest = _manifest(name, family, learned, runs)
        if confidence is not None:  # of the first model: the one that can be judged
            confidence = replace(confidence, places=places_of(learned))
        notes = (
            "This model has seen all problems. The metrics are those of one made the same way "
            f"without {problems} of them, on these."
        )
    manifest = replace(manifest, metrics=metrics, notes=notes, everything=everything)
    with tempfile.TemporaryDirectory(prefix="diode-model-") as folder:
        made = Path(folder) / name
        save_artifact(made, manifest, members, confidence)
        model = registry.register(made, default=default)
    return Trained(
        model=model,
        problems=_problems(learned),
        timings=len(learned),
        held_out_problems=problems,
        left_out=int((table.failure == 0).sum() - (one.failure == 0).sum()),
        seconds=time.monotonic() - began,
    )


def train_from_store(
    store: Store,
    *,
    report: Report = lambda member, progress: None,
    family: str = "ensemble",
    hardware: str | None = None,
    name: str | None = None,
    seed: int = 0,
    everything: bool = False,
    default: bool = False,
    settings: Settings | None = None,
) -> Trained:
    """`train` on what the store has, as a run of kind train in it, which shows how far it is
    and how it ended."""
    spec = {
        "family": family, "hardware": hardware, "name": name, "seed": seed,
        "everything": everything,
    }  # fmt: skip
    table = store.read()
    sources = tuple(r.key or f"{r.kind} {r.id}" for r in store.runs() if r.kind in _SOURCES)
    run = begin(store, "train", spec)
    heartbeat = Heartbeat(store, run)
    written = time.monotonic()

    def told(member: str, progress: Progress) -> None:
        nonlocal written
        heartbeat.check()
        report(member, progress)
        if time.monotonic() - written >= HEARTBEAT_SECONDS:
            written = time.monotonic()
            store.update_run(run, progress=_progress(member, progress))

    state, message = "failed", None
    try:
        with heartbeat:
            trained = train(
                table, family=family, hardware=hardware, name=name, seed=seed,
                everything=everything, default=default, runs=sources, settings=settings,
                report=told,
            )  # fmt: skip
        state, message = "done", f"registered as {trained.model.reference}"
        return trained
    except KeyboardInterrupt:
        state, message = "cancelled", "stopped by the user"
        raise
    except BaseException as error:
        message = str(error)
        raise
    finally:
        store.finish_run(run, state, message)


def _progress(member: str, progress: Progress) -> Mapping[str, Any]:
    return {
        "member": member,
        "step": progress.step,
        "steps": progress.steps,
        "log_rmse": progress.rmse,
        "efficiency": progress.efficiency,
    }


def _manifest(name: str, family: str, learned: TimingTable, runs: Sequence[str]) -> Manifest:
    environments = [learned.environments[i] for i in sorted(set(learned.environment.tolist()))]
    return Manifest(
        name=name,
        family=family,
        hardware=environments[0].hardware,
        coverage=Coverage.of(learned),
        data=Data((dataset_key(learned),), tuple(runs), _problems(learned), len(learned)),
        torch=tuple(sorted({environment.torch for environment in environments})),
        triton=tuple(sorted({environment.triton for environment in environments})),
    )


def _metrics(model: Artifact, held_out: TimingTable) -> Mapping[str, Any]:
    """Efficiencies (see validation.metrics) and errors on these problems, and what others that
    choose reach on them."""
    report = evaluate(held_out, Predictor(model), name=model.manifest.name)
    row, *others = report.rows
    metrics = {
        "problems": report.problems,
        "efficiency": row.top[1].geomean,
        "efficiency_p10": row.top[1].p10,
        "efficiency_worst": row.top[1].worst,
        "efficiency_top": {str(k): summary.geomean for k, summary in row.top.items() if k > 1},
        "efficiency_of_others": {other.chooser: other.top[1].geomean for other in others},
    }
    if report.errors is not None:
        metrics["log_rmse"] = report.errors.rmse_log
    return metrics


def _problems(table: TimingTable) -> int:
    return len(set(table.problem.tolist()))
