"""The search for hyper-parameters: settings that choose better on problems that their model has
not seen, folds of the training problems. The held-out problems take no part.

Optuna proposes and remembers: its storage is a file beside the store, and a search for the same
timings, family and seed goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.models.ensemble import Ensemble
from diode_engine.models.fitting import Examples, efficiency
from diode_engine.models.members import answers_of
from diode_engine.store.transfer import dataset_key
from diode_engine.training.fit import DISTILLED, FAMILIES, TEACHER, Report, Settings, fit
from diode_engine.validation.splits import folds

if TYPE_CHECKING:
    import optuna

FOLDS = 3


@dataclass(frozen=True)
class Trial:
    """One trial that came to its end: its place from 1, the settings it tried, by name, and the
    geometric mean of its choices' efficiency over the folds' problems; None where it was given
    up after the first folds, since others were better there."""

    number: int
    parameters: dict[str, Any]
    efficiency: float | None


def search(
    table: TimingTable,
    family: str,
    trials: int,
    storage: Path,
    *,
    seed: int = 0,
    settings: Settings | None = None,
    report: Report = lambda member, progress: None,
    told: Callable[[Trial], None] = lambda trial: None,
) -> Settings:
    """The best settings of this many trials, those of an earlier search for the same among them,
    on rows as `fit` takes them; what is not searched is as in `settings`. `told` hears of each
    trial, those of the earlier search first. The first trial is `settings` itself.

    Raises TrainingError as `fit` does.
    """
    import optuna

    base = settings or Settings()
    if family == DISTILLED:  # what it learns from decides, and takes a third of the time
        family = TEACHER
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    key = f"{dataset_key(table)} {family} {seed} {base}"
    study = optuna.create_study(
        storage=f"sqlite:///{storage}",
        study_name=hashlib.sha256(key.encode()).hexdigest()[:32],
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    # A search that goes on proposes something else than it did at its beginning.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    for cut_short in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(cut_short.number, state=optuna.trial.TrialState.FAIL)
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)

    def tell(trial: optuna.trial.FrozenTrial) -> None:
        complete = trial.state is optuna.trial.TrialState.COMPLETE
        told(Trial(trial.number + 1, trial.params, trial.value if complete else None))

    earlier = study.get_trials(states=ended)
    for trial in earlier:
        tell(trial)
    if not study.trials:
        study.enqueue_trial(_parameters(base, family))

    def objective(trial: optuna.Trial) -> float:
        tried = _suggested(trial, base, family)
        gaps = []
        for number, part in enumerate(folds(table, FOLDS, seed=seed)):
            members = fit(
                part.learned, family, seed=seed, settings=tried,
                report=lambda member, progress, name=part.name: report(  # type: ignore[misc]
                    f"trial {trial.number + 1}, {name}, {member}", progress
                ),
            )  # fmt: skip
            hardware = part.judged.environments[int(part.judged.environment[0])].hardware
            judged = Examples.of(part.judged, hardware)
            reached = efficiency(judged, Ensemble.mean(list(answers_of(members, judged.x))))
            gaps += [np.log(reached)] * len(judged.starts)
            trial.report(float(np.exp(np.mean(gaps))), number)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(np.exp(np.mean(gaps)))

    study.optimize(
        objective,
        n_trials=max(0, trials - len(earlier)),
        callbacks=[lambda _, trial: tell(trial)],
    )
    return _settings(base, study.best_params)


# The settings that are searched, by the kind of member: name, range, whether by its logarithm.
_NUMBERS: dict[str, dict[str, tuple[float, float, bool]]] = {
    "network": {
        "learning_rate": (5e-4, 8e-3, True),
        "weight_decay": (1e-4, 0.1, True),
        "dropout": (0.0, 0.2, False),
        "focus": (0.5, 12.0, True),
        "rank": (0.01, 1.0, True),
        "temperature": (0.03, 0.3, True),
    },
    "trees": {
        "max_depth": (4, 10, False),
        "learning_rate": (0.02, 0.2, True),
        "min_child_weight": (1.0, 30.0, True),
        "row_share": (0.5, 1.0, False),
        "column_share": (0.3, 1.0, False),
        "l2": (0.1, 10.0, True),
        "focus": (0.5, 12.0, True),
    },
}
_WIDTHS = (64, 96, 128, 192, 256, 384)  # of a network's layers, the first to the last but one
_DEPTHS = (2, 4)


def _kinds(family: str) -> list[str]:
    """The kinds of members of this family that are searched."""
    return [kind for kind in _NUMBERS if kind in FAMILIES[family]]


def _parameters(settings: Settings, family: str) -> dict[str, Any]:
    """The settings as a trial's parameters, as far as they are in the ranges."""
    out: dict[str, Any] = {}
    for kind in _kinds(family):
        for name, (low, high, _) in _NUMBERS[kind].items():
            out[f"{kind}.{name}"] = min(max(getattr(getattr(settings, kind), name), low), high)
    if "network" in _kinds(family):
        hidden = settings.network.hidden
        out["network.width"] = min(_WIDTHS, key=lambda width: abs(width - hidden[0]))
        out["network.layers"] = min(max(len(hidden), _DEPTHS[0]), _DEPTHS[1])
    return out


def _suggested(trial: optuna.Trial, base: Settings, family: str) -> Settings:
    for kind in _kinds(family):
        for name, (low, high, log) in _NUMBERS[kind].items():
            if isinstance(low, int):
                trial.suggest_int(f"{kind}.{name}", low, int(high))
            else:
                trial.suggest_float(f"{kind}.{name}", low, high, log=log)
    if "network" in _kinds(family):
        trial.suggest_categorical("network.width", _WIDTHS)
        trial.suggest_int("network.layers", *_DEPTHS)
    return _settings(base, trial.params)


def _settings(base: Settings, parameters: dict[str, Any]) -> Settings:
    """The settings with a trial's parameters in them."""
    parts = {kind: getattr(base, kind) for kind in _NUMBERS}
    for kind, numbers in _NUMBERS.items():
        found = {n: parameters[f"{kind}.{n}"] for n in numbers if f"{kind}.{n}" in parameters}
        parts[kind] = replace(parts[kind], **found)
    if "network.width" in parameters:
        width, layers = parameters["network.width"], parameters["network.layers"]
        # The last layer is half as wide, as in the networks that were compared by hand.
        hidden = (width,) * (layers - 1) + (width // 2,)
        parts["network"] = replace(parts["network"], hidden=hidden)
    return replace(base, **parts)
