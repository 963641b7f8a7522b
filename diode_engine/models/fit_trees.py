"""Fits boosted trees with XGBoost."""

from __future__ import annotations

import math
import os
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.errors import ModelError
from diode_engine.models.fitting import (
    Checkpoint,
    CheckpointError,
    Examples,
    FitProgress,
    ProgressCallback,
    efficiency,
    history_of,
    importance,
    pack,
    ranking_loss,
    softmax_by_problem,
    unpack,
)
from diode_engine.models.fitting_method import FittingMethod, Range
from diode_engine.models.trees import Trees


@dataclass(frozen=True)
class TreesSettings:
    """How trees are fitted. `rank` is the weight of the listwise loss against the squared error of
    a problem (0: none); `focus` is the weight of the rows near a problem's best (see
    fitting.importance)."""

    rounds: int = 1200
    patience: int = 60
    learning_rate: float = 0.05
    max_depth: int = 10
    min_child_weight: float = 4.0
    row_share: float = 0.8
    column_share: float = 0.5
    l2: float = 1.0
    residual: bool = True
    focus: float = 8.0
    rank: float = 0.0
    temperature: float = 0.1
    seed: int = 0
    threads: int = 0  # 0: as many as there are cores

    def with_fewer_steps(self, divisor: int) -> TreesSettings:
        """As FitSettings.with_fewer_steps; the learning rate grows as the rounds get fewer."""
        return replace(
            self,
            rounds=max(self.rounds // divisor, 1),
            learning_rate=min(self.learning_rate * divisor, 1),
        )

    def with_searched(self, **values: Any) -> TreesSettings:
        return replace(self, **values)


class _Objective:
    """What boosting minimises, on the rows to fit to: as XGBoost calls it, the gradients of a
    round. `train_score` is the score of the last call."""

    def __init__(self, train: Examples, s: TreesSettings) -> None:
        self._train, self._s = train, s
        self._base = train.base(residual=s.residual)
        self.target = train.log_us - self._base  # [n] what the trees add up to
        weight = importance(train, s.focus)
        self._weight = weight / weight.mean()
        log_us = train.log_us.astype(np.float64)
        self._truth = softmax_by_problem(train, -log_us / s.temperature)
        self._share = s.rank * np.repeat(train.counts, train.counts)
        self.train_score = math.nan

    def score(self, examples: Examples, log_us: npt.NDArray[Any]) -> float:
        """The objective of these predictions."""
        out = float(np.sqrt(np.mean((log_us - examples.log_us) ** 2)))
        if self._s.rank:
            out += self._s.rank * ranking_loss(examples, log_us, self._s.temperature)
        return out

    def __call__(self, predicted: npt.NDArray[Any], _: Any) -> tuple[Any, Any]:
        s, log_us = self._s, predicted + self._base
        self.train_score = self.score(self._train, log_us)
        grad, hess = self._weight * (predicted - self.target), self._weight.copy()
        if s.rank:
            guess = softmax_by_problem(self._train, -log_us / s.temperature)
            grad = grad + self._share * (self._truth - guess) / s.temperature
            hess = hess + self._share * guess * (1 - guess) / s.temperature**2
        return grad.astype(np.float32), hess.astype(np.float32)


def fit_trees(
    train: Examples,
    held_out: Examples,
    settings: TreesSettings,
    report: ProgressCallback = lambda progress: None,
    checkpoint: Checkpoint | None = None,
) -> Trees:
    """Boosts until the objective on the held-out problems has not improved for `patience` rounds,
    and returns the best round.

    `report` is called after each round; an exception in it ends the fit. With a `checkpoint` the
    fit continues after the last saved round and reports the earlier rounds again. The columns of
    later rounds are drawn anew then, so the trees are as good as those of a fit without
    interruption, but not the same.
    """
    # Threads that spin at each barrier stall one another where other work wants the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import xgboost

    s, objective = settings, _Objective(train, settings)
    base_held_out = held_out.base(residual=s.residual)
    matrix = xgboost.QuantileDMatrix(train.x, objective.target, nthread=s.threads or None)
    checks = xgboost.QuantileDMatrix(
        held_out.x, held_out.log_us - base_held_out, ref=matrix, nthread=s.threads or None
    )
    parameters = {
        "tree_method": "hist",
        "learning_rate": s.learning_rate,
        "max_depth": s.max_depth,
        "min_child_weight": s.min_child_weight,
        "subsample": s.row_share,
        "colsample_bytree": s.column_share,
        "lambda": s.l2,
        "base_score": float(np.mean(objective.target)),
        "seed": s.seed,
        "seed_per_iteration": True,  # a resumed fit draws the same rows in each round
        "nthread": s.threads,
    }
    booster = xgboost.Booster(parameters, [matrix, checks])
    history: list[FitProgress] = []
    saved = checkpoint.load() if checkpoint is not None else None
    if saved is not None:
        booster, history = _restored(saved)
        booster.set_param(parameters)
        for progress in history:
            report(progress)

    def state() -> bytes:
        trees = Trees(booster, residual=s.residual).to_bytes()
        return pack({"trees": np.frombuffer(trees, np.uint8)}, [astuple(p) for p in history])

    while len(history) < s.rounds:
        best = min((p.objective, p.step) for p in history)[1] if history else 0
        if len(history) - best >= s.patience:
            break
        booster.update(matrix, len(history), objective)
        log_us = booster.predict(checks) + base_held_out
        progress = FitProgress(
            len(history) + 1,
            s.rounds,
            float(np.sqrt(np.mean((log_us - held_out.log_us) ** 2))),
            efficiency(held_out, log_us),
            objective.score(held_out, log_us),
            objective.train_score,
        )
        history.append(progress)
        if checkpoint is not None:
            checkpoint.save(state)
        report(progress)
    best = min((p.objective, p.step) for p in history)[1]
    return Trees(booster[:best], residual=s.residual)


def _restored(saved: bytes) -> tuple[Any, list[FitProgress]]:
    """The booster and the history in a checkpoint. Raises CheckpointError where the checkpoint does
    not hold trees, or a history of another length."""
    tensors, facts = unpack(saved)
    history = history_of(facts)
    try:
        booster = Trees.from_bytes(tensors["trees"].tobytes()).booster
    except (KeyError, ModelError) as error:
        raise CheckpointError(f"A checkpoint holds no trees ({error}); remove it.") from None
    if booster.num_boosted_rounds() != len(history):
        raise CheckpointError(
            f"A checkpoint has {booster.num_boosted_rounds()} rounds of trees and the progress of "
            f"{len(history)}; remove it."
        )
    return booster, history


FITTING = FittingMethod(
    TreesSettings(),
    fit_trees,
    {
        "max_depth": Range(4, 10),
        "learning_rate": Range(0.02, 0.2, log=True),
        "min_child_weight": Range(1.0, 30.0, log=True),
        "row_share": Range(0.5, 1.0),
        "column_share": Range(0.3, 1.0),
        "l2": Range(0.1, 10.0, log=True),
        "focus": Range(0.5, 12.0, log=True),
    },
)
