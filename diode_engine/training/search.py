"""The search for hyper-parameters: settings with which models choose better on problems that they
have not seen. These are folds of the training problems; the held-out problems take no part.

Optuna proposes settings and keeps the trials: its storage is a file beside the store. A search for
the same timings, family and seed continues where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.models.fitting import Examples, efficiency
from diode_engine.models.fitting_method import Range, Searched
from diode_engine.models.model_types import MODEL_TYPES, member_types
from diode_engine.models.protocol import prediction_of
from diode_engine.problems.splits import SplitPart, folds
from diode_engine.store.datasets.key import dataset_key
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.fit_steps import FitTask, Members, fit_labels
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.settings import TrainingSettings

if TYPE_CHECKING:
    import optuna

FOLDS = 3
# Trials that are proposed at a time: the later ones do not profit from the earlier ones' results,
# so that with more of them the last would hardly be better than random.
MAX_TOGETHER = 8


@dataclass(frozen=True)
class Trial:
    """A finished trial."""

    number: int  # from 1
    parameters: dict[str, Any]  # the settings that it tried, by name
    # The geometric mean of its choices' efficiency over the folds' problems; None where the trial
    # was stopped early because others were better on the first folds.
    efficiency: float | None


def search(
    table: TimingTable,
    family: str,
    trials: int,
    storage: Path,
    *,
    seed: int = 0,
    settings: TrainingSettings | None = None,
    report: FitCallback = lambda label, progress: None,
    report_trial: Callable[[Trial], None] = lambda trial: None,
    fits: FitExecutor = IN_THIS_PROCESS,
) -> TrainingSettings:
    """The best settings of this many trials, on rows of a FitTask. Trials of an earlier
    search for the same settings count. The first trial is `settings`; what is not searched stays as
    it is there. `report_trial` is called with each trial, those of the earlier search first.

    As many trials are proposed together as `fits` makes fits at a time, at most MAX_TOGETHER. The
    proposals depend on this number, not on where the fits are made.

    Raises TrainingError as `FitExecutor.run` does.
    """
    from optuna.trial import FrozenTrial, TrialState

    base = settings or TrainingSettings()
    # A student is as good as its teacher, whose fit takes a third of the time: search for it.
    if family in MODEL_TYPES:
        family = MODEL_TYPES[family].teacher or family
    parts = folds(table, FOLDS, seed=seed)

    def task_of(trial: optuna.Trial, part: SplitPart) -> FitTask:
        name = _name(trial.number, part)
        return FitTask(part.learned, family, seed, _with(base, trial.params), name)

    def tell(trial: FrozenTrial) -> None:
        for part in parts:  # also those for which the trial was given up
            for label in fit_labels(family, _name(trial.number, part)):
                report(label, None)
        complete = trial.state is TrialState.COMPLETE
        report_trial(Trial(trial.number + 1, trial.params, trial.value if complete else None))

    key = f"{dataset_key(table)} {family} {seed} {json.dumps(base.to_dict(), sort_keys=True)}"
    study = _open_study(storage, key, seed)
    earlier = study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))
    for trial in earlier:
        tell(trial)
    searched = _searched(family)
    if not study.trials:
        study.enqueue_trial(_parameters(base, searched))
    distributions = {name: _distribution(values) for name, values in searched.items()}
    left = max(0, trials - len(earlier))
    while left:
        together = [study.ask(distributions) for _ in range(min(left, fits.slots, MAX_TOGETHER))]
        left -= len(together)
        found = _judge(together, parts, task_of, fits, report)
        for asked, reached in zip(together, found, strict=True):
            tell(study.tell(asked, reached, TrialState.PRUNED if reached is None else None))
    return _with(base, study.best_params)


def _open_study(storage: Path, key: str, seed: int) -> optuna.Study:
    """The study of this key, which may have trials of an earlier search."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{storage}",
        study_name=hashlib.sha256(key.encode()).hexdigest()[:32],
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    # A search that continues must not propose again what it proposed at its beginning.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    for cut_short in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(cut_short.number, state=optuna.trial.TrialState.FAIL)
    return study


def _judge(
    together: Sequence[optuna.Trial],
    parts: Sequence[SplitPart],
    task_of: Callable[[optuna.Trial, SplitPart], FitTask],
    fits: FitExecutor,
    report: FitCallback,
) -> list[float | None]:
    """The efficiency of each trial (Trial.efficiency), fold by fold for all of them together."""
    logs: dict[int, list[float]] = {trial.number: [] for trial in together}
    going = list(together)
    for number, part in enumerate(parts):
        tasks = [task_of(trial, part) for trial in going]
        for trial, (_, members) in zip(going, fits.run(tasks, report), strict=True):
            logs[trial.number] += _log_efficiencies(part, members)
            trial.report(float(np.exp(np.mean(logs[trial.number]))), number)
        going = [trial for trial in going if not trial.should_prune()]
    return [
        float(np.exp(np.mean(logs[trial.number]))) if trial in going else None for trial in together
    ]


def _name(trial: int, part: SplitPart) -> str:
    """How reports name the model of a trial, by Optuna's number, that is judged on this part."""
    return f"trial {trial + 1}, {part.name}"


def _log_efficiencies(part: SplitPart, members: Members) -> list[float]:
    """The logarithm of the members' efficiency on the part, once for each of its problems: the mean
    over several parts then weighs all problems alike."""
    judged = Examples.make(part.judged)
    reached = efficiency(judged, prediction_of(members, judged.x))
    return [float(np.log(reached))] * len(judged.starts)


def _searched(family: str) -> Searched:
    """What a search tries for the members of this family, by "model type.name". Optuna draws in
    this order: in another one, a seed would propose other trials."""
    fields: dict[str, Range | tuple[int, ...]] = {}
    made_of_several: dict[str, Range | tuple[int, ...]] = {}
    for kind in sorted(set(member_types(family))):
        method = MODEL_TYPES[kind].fitting_method()
        for name, values in method.searched.items():
            found = fields if name in vars(method.settings) else made_of_several
            found[f"{kind}.{name}"] = values
    return fields | made_of_several


def _distribution(values: Range | tuple[int, ...]) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    if isinstance(values, tuple):
        return distributions.CategoricalDistribution(values)
    if isinstance(values.low, int):
        return distributions.IntDistribution(values.low, int(values.high))
    return distributions.FloatDistribution(values.low, values.high, log=values.log)


def _parameters(settings: TrainingSettings, searched: Searched) -> dict[str, Any]:
    """The searched parameters as these settings have them, or the nearest that are tried."""
    found = {}
    for name, values in searched.items():
        kind, _, own = name.partition(".")
        found[name] = _nearest(getattr(settings.find(kind), own), values)
    return found


def _nearest(value: Any, values: Range | tuple[int, ...]) -> Any:
    """Return that of the values which is nearest to this one."""
    if isinstance(values, tuple):
        return min(values, key=lambda each: abs(each - value))
    return min(max(value, values.low), values.high)


def _with(base: TrainingSettings, parameters: dict[str, Any]) -> TrainingSettings:
    """The settings with a trial's parameters."""
    by_type: dict[str, dict[str, Any]] = {}
    for name, value in parameters.items():
        kind, _, own = name.partition(".")
        by_type.setdefault(kind, {})[own] = value
    families = {kind: base.find(kind).with_searched(**given) for kind, given in by_type.items()}
    return replace(base, families={**base.families, **families})
