"""Fits boosted trees with XGBoost."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.models.fitting import (
    Examples,
    Progress,
    Report,
    efficiency,
    importance,
    ranking_loss,
    softmax_by_problem,
)
from diode_engine.models.trees import Trees


@dataclass(frozen=True)
class TreesSettings:
    """How trees are fitted. `rank` weighs the listwise loss against the squared error of a
    problem (0: none), `focus` the rows near a problem's best (see fitting.importance)."""

    rounds: int = 700
    patience: int = 60
    learning_rate: float = 0.05
    max_depth: int = 8
    min_child_weight: float = 4.0
    row_share: float = 0.8
    column_share: float = 0.5
    l2: float = 1.0
    residual: bool = True
    focus: float = 3.0
    rank: float = 0.0
    temperature: float = 0.1
    seed: int = 0
    threads: int = 0  # 0: as many as there are cores


def fit_trees(
    train: Examples,
    held_out: Examples,
    settings: TreesSettings | None = None,
    report: Report | None = None,
) -> Trees:
    """Boosts until the objective on the held-out problems has not improved for `patience`
    rounds, and keeps the best round. Calls `report` after each round; an exception in it ends
    the fit."""
    # Threads that spin at each barrier stall one another where other work wants the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import xgboost

    s = settings or TreesSettings()
    ln2 = np.float32(math.log(2))

    def offset(examples: Examples) -> Any:
        return examples.x[:, features.BASE] * ln2 if s.residual else np.float32(0)

    weight = importance(train, s.focus)
    weight /= weight.mean()
    truth = softmax_by_problem(train, -train.log_us.astype(np.float64) / s.temperature)
    share = s.rank * np.repeat(train.counts, train.counts)

    def objective(predicted: npt.NDArray[Any], data: Any) -> tuple[Any, Any]:
        error = predicted - target
        grad, hess = weight * error, weight.copy()
        if s.rank:
            guess = softmax_by_problem(train, -(predicted + base) / s.temperature)
            grad = grad + share * (truth - guess) / s.temperature
            hess = hess + share * guess * (1 - guess) / s.temperature**2
        return grad.astype(np.float32), hess.astype(np.float32)

    def metric(predicted: npt.NDArray[Any], data: Any) -> tuple[str, float]:
        log_us = predicted + offset(held_out)
        rmse = float(np.sqrt(np.mean((log_us - held_out.log_us) ** 2)))
        score = rmse
        if s.rank:
            score += s.rank * ranking_loss(held_out, log_us, s.temperature)
        return "objective", score

    base = offset(train)
    target = train.log_us - base
    matrix = xgboost.QuantileDMatrix(train.x, target, nthread=s.threads or None)
    checks = xgboost.QuantileDMatrix(
        held_out.x, held_out.log_us - offset(held_out), ref=matrix, nthread=s.threads or None
    )
    parameters = {
        "tree_method": "hist",
        "learning_rate": s.learning_rate,
        "max_depth": s.max_depth,
        "min_child_weight": s.min_child_weight,
        "subsample": s.row_share,
        "colsample_bytree": s.column_share,
        "lambda": s.l2,
        "base_score": float(np.mean(target)),
        "disable_default_eval_metric": True,
        "seed": s.seed,
        "nthread": s.threads,
    }

    class Watch(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if report is not None:
                log_us = model.predict(checks) + offset(held_out)
                report(
                    Progress(
                        epoch + 1,
                        s.rounds,
                        float(np.sqrt(np.mean((log_us - held_out.log_us) ** 2))),
                        efficiency(held_out, log_us),
                        float(evals_log["held_out"]["objective"][-1]),
                    )
                )
            return False

    booster = xgboost.train(
        parameters,
        matrix,
        num_boost_round=s.rounds,
        evals=[(checks, "held_out")],
        obj=objective,
        custom_metric=metric,
        callbacks=[Watch(), xgboost.callback.EarlyStopping(rounds=s.patience, save_best=True)],
        verbose_eval=False,
    )
    for name in ("best_iteration", "best_score"):
        booster.set_attr(**{name: None})
    return Trees(booster, residual=s.residual)
