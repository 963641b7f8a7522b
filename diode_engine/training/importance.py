"""How much each setting mattered for how well trainings chose."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diode_engine.errors import TrainingError, explain_missing_package

if TYPE_CHECKING:
    import optuna

LEAST_RUNS = 5  # trainings, with fewer of which nothing can be said
_BEST = 0.25  # the share of the trainings that are compared with all
_HOW = "To say which settings mattered"


def setting_importances(trainings: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """Return the share of each setting in what tells the best quarter of trainings from all, the
    largest first; the shares add up to 1. A setting that is the same in all trainings, or a text
    that is different in each, is left out. `trainings` are (settings by name, efficiency); they
    must be judged on the same problems. Source: Optuna's PED-ANOVA.

    Raises TrainingError where there are fewer than LEAST_RUNS, or Optuna is not installed.
    """
    if len(trainings) < LEAST_RUNS:
        raise TrainingError(
            f"{_HOW} takes {LEAST_RUNS} trainings that were judged on the same problems; there "
            f"{'is' if len(trainings) == 1 else 'are'} {len(trainings)}."
        )
    try:
        import optuna
        from optuna.importance import get_param_importances
    except ModuleNotFoundError as error:
        raise TrainingError(explain_missing_package(error, _HOW) or str(error)) from None
    names = dict.fromkeys(name for settings, _ in trainings for name in settings)
    spread = {
        name: found
        for name in names
        if (found := _distribution([settings.get(name) for settings, _ in trainings])) is not None
    }
    if not spread:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize")
        for settings, efficiency in trainings:
            values = {name: _value(settings.get(name), of) for name, of in spread.items()}
            study.add_trial(
                optuna.trial.create_trial(params=values, distributions=spread, value=efficiency)
            )
        return dict(get_param_importances(study, evaluator=_evaluator()))


def _evaluator() -> optuna.importance.BaseImportanceEvaluator:
    from optuna.importance import PedAnovaImportanceEvaluator

    make: Any = PedAnovaImportanceEvaluator
    try:
        return make(target_quantile=_BEST)  # type: ignore[no-any-return]
    except TypeError:  # Optuna 4.1 to 4.6
        return make(baseline_quantile=_BEST)  # type: ignore[no-any-return]


def _distribution(values: Sequence[object]) -> optuna.distributions.BaseDistribution | None:
    """Return the range, or the texts, of a setting's values; None for a setting that tells
    nothing."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if len(set(map(repr, values))) < 2:
        return None
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values):
        return FloatDistribution(min(numbers), max(numbers))
    texts = sorted(set(map(str, values)))
    return CategoricalDistribution(texts) if len(texts) < len(values) else None


def _value(value: Any, of: optuna.distributions.BaseDistribution) -> str | float:
    from optuna.distributions import FloatDistribution

    return float(value) if isinstance(of, FloatDistribution) else str(value)
