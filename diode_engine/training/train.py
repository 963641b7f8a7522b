"""A model from timings: fitted, judged on problems it has not seen, and registered."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import (
    Artifact,
    Coverage,
    Data,
    Manifest,
    check_name,
    save_artifact,
)
from diode_engine.models.confidence import Confidence
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import TimingModel
from diode_engine.store.transfer import dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.confidence import learn_confidence, places_of
from diode_engine.training.fine_tune import check_base, covered, fine_tune
from diode_engine.training.fit import (
    DISTILLED,
    FAMILIES,
    Report,
    Settings,
    fit,
    learnable,
    one_environment,
)
from diode_engine.validation import evaluate, splits

LEAST_HELD_OUT = 2  # problems to judge a model by


@dataclass(frozen=True)
class Origin:
    """Where timings came from: the content keys and names of dataset files, runs of a store."""

    datasets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """What a training made. Counts are of what the model was fitted to, with what early
    stopping watched; `left_out` counts successful timings of other hardware or software, by
    what that is."""

    model: registry.ModelVersion
    problems: int
    timings: int
    held_out_problems: int
    left_out: Mapping[str, int]
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
            "left_out": dict(self.left_out),
            "metrics": dict(manifest.metrics),
            "notes": manifest.notes,
            "seconds": round(self.seconds, 1),
        }


def train(
    table: TimingTable,
    *,
    family: str = "ensemble",
    base: Artifact | None = None,
    hardware: str | None = None,
    name: str | None = None,
    seed: int = 0,
    everything: bool = False,
    default: bool = False,
    origin: Origin | None = None,
    settings: Settings | None = None,
    report: Report = lambda member, progress: None,
    checkpoints: Checkpoints | None = None,
) -> Trained:
    """Fits a model of this family for the GPU named `hardware` and registers it as the next
    version of `name` (the family's, if None), with `default` as the one that is taken there.
    With `base` it is that model tuned to the timings (see `fine_tune`), a distilled network,
    and the next version of the base's name.

    Its metrics are those on the held-out problems (`splits.held_out`), which it has not seen;
    how sure it is was learned from the others, for a tuned model by its base.
    With `everything` a second model is fitted, to all problems, and registered; the metrics
    remain the first one's, and the notes say so. With `checkpoints` the fits go on where a
    training like this one was cut short. Raises TrainingError where the timings do not suffice,
    RegistryError, before anything is fitted, where the model could not be registered.
    """
    began = time.monotonic()
    if base is not None:
        family = DISTILLED
    if family not in FAMILIES:
        raise TrainingError(f"There is no family {family!r}; there are {', '.join(FAMILIES)}.")
    name = check_name(name or (family if base is None else base.manifest.name))
    one = one_environment(table, hardware)
    learned, held_out = splits.split(learnable(one))
    problems = _problems(held_out)
    if problems < LEAST_HELD_OUT:
        raise TrainingError(
            f"Of {_problems(learnable(one))} problems with timings {problems} are held out, which "
            f"is too few to judge a model by ({LEAST_HELD_OUT} are needed): collect or import more."
        )
    device = one.environments[int(one.environment[0])].hardware
    if base is not None:
        check_base(base, device)
    registry.check_registrable(name, device)

    def fitted(rows: TimingTable, report: Report) -> tuple[TimingModel, ...]:
        if base is not None:
            return fine_tune(
                rows, base, seed=seed, settings=settings, report=report, checkpoints=checkpoints
            )
        return fit(
            rows, family, seed=seed, settings=settings, report=report, checkpoints=checkpoints
        )

    members = fitted(learned, report)
    confidence = _tuned_confidence(base, learned) if base is not None else learn_confidence(
        learned, family, seed=seed, settings=settings, report=report, checkpoints=checkpoints
    )  # fmt: skip
    # Failed candidates take part: whoever chooses one has chosen badly.
    judged = splits.split(one)[1]
    manifest = _manifest(name, family, learned, origin or Origin(), base)
    metrics = _metrics(Artifact(manifest, members, confidence), judged)
    if base is not None:
        metrics["efficiency_of_base"] = _metrics(base, judged)["efficiency"]
    seen_by_base = False if base is None else base.manifest.everything
    notes = _notes(problems, seen_by_base)
    if everything:
        learned = learnable(one)
        members = fitted(learned, lambda member, p: report(f"{member}, all problems", p))
        manifest = _manifest(name, family, learned, origin or Origin(), base)
        if confidence is not None:  # of the first model: the one that can be judged
            confidence = replace(confidence, places=_places(base, learned))
        notes = (
            "This model has seen all problems. The metrics are those of one made the same way "
            f"without {problems} of them, on these."
        )
    seen = everything or seen_by_base
    manifest = replace(manifest, metrics=metrics, notes=notes, everything=seen)
    with tempfile.TemporaryDirectory(prefix="diode-model-") as folder:
        made = Path(folder) / name
        save_artifact(made, manifest, members, confidence)
        model = registry.register(made, default=default)
    if checkpoints is not None:
        checkpoints.clear()
    return Trained(
        model=model,
        problems=_problems(learned),
        timings=len(learned),
        held_out_problems=problems,
        left_out=_left_out(table, one),
        seconds=time.monotonic() - began,
    )


def _notes(problems: int, seen_by_base: bool | None) -> str:
    """What the metrics are on, of a model that was not trained on everything itself."""
    if seen_by_base is False:
        return f"The metrics are on {problems} problems that this model has not seen."
    has = "has" if seen_by_base else "may have"
    return (
        f"The metrics are on {problems} problems that took no part in the tuning, but the model "
        f"that was tuned {has} seen them."
    )


def _tuned_confidence(base: Artifact, learned: TimingTable) -> Confidence | None:
    if base.confidence is None:
        return None
    return replace(base.confidence, places=_places(base, learned))


def _places(base: Artifact | None, learned: TimingTable) -> Any:
    """Where the problems are that the model has learned from, with its base's."""
    places = places_of(learned)
    if base is None or base.confidence is None:
        return places
    return np.concatenate([base.confidence.places, places], axis=1)


def _left_out(table: TimingTable, one: TimingTable) -> dict[str, int]:
    """Successful timings by the GPU, torch and Triton that the model is not made for."""
    kept = {one.environments[i] for i in set(one.environment.tolist())}
    counts = Counter(table.environment[table.failure == 0].tolist())
    left: Counter[str] = Counter()
    for place, count in counts.items():
        environment = table.environments[place]
        if environment not in kept:
            e = environment
            left[f"{e.hardware.name}, torch {e.torch}, Triton {e.triton}"] += count
    return dict(left.most_common())


def _manifest(
    name: str, family: str, learned: TimingTable, origin: Origin, base: Artifact | None
) -> Manifest:
    environments = [learned.environments[i] for i in sorted(set(learned.environment.tolist()))]
    coverage = Coverage.of(learned)
    if base is not None:
        coverage = covered(base.manifest.coverage, coverage)
    return Manifest(
        name=name,
        family=family,
        hardware=environments[0].hardware,
        coverage=coverage,
        data=Data(
            datasets=(dataset_key(learned), *origin.datasets),
            runs=origin.runs,
            problems=_problems(learned),
            timings=len(learned),
            files=origin.files,
            base="" if base is None else base.manifest.identity,
        ),
        torch=tuple(sorted({environment.torch for environment in environments})),
        triton=tuple(sorted({environment.triton for environment in environments})),
    )


def _metrics(model: Artifact, held_out: TimingTable) -> dict[str, Any]:
    """Efficiencies (see validation.metrics) and errors on these problems, and what others that
    choose reach on them."""
    report = evaluate(held_out, Predictor(model), name=model.manifest.name)
    row, *others = report.rows
    metrics: dict[str, Any] = {
        "problems": report.problems,
        "efficiency": row.top[1].geomean,
        "efficiency_p10": row.top[1].p10,
        "efficiency_worst": row.top[1].worst,
        "efficiency_top": {str(k): summary.geomean for k, summary in row.top.items() if k > 1},
        "efficiency_of_others": {other.chooser: other.top[1].geomean for other in others},
    }
    if report.errors is not None:
        metrics["log_rmse"] = report.errors.rmse_log
    if report.calibration is not None:
        metrics["calibration_error"] = report.calibration.error
        metrics["calibration_error_by_chance"] = report.calibration.chance
        metrics["efficiency_surest"] = {
            str(share): summary.geomean for share, summary in report.calibration.surest.items()
        }
    return metrics


def _problems(table: TimingTable) -> int:
    return len(set(table.problem.tolist()))
