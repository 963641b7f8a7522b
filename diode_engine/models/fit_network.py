"""Fits a network with torch, on a GPU where there is one."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

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
)
from diode_engine.models.network import Network
from diode_engine.models.protocol import Matrix

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is fitted.

    A step looks at `rows` candidates each of `problems` problems, drawn by importance (see
    fitting.importance; `focus`), with ATen's kernels drawn in about `extern_share` of
    the cases, since they are few and the choice against them counts. The loss is Huber's of
    log time plus `rank` times the listwise or regret loss over the drawn rows of a problem:
    "listwise" is the cross entropy between softmax(−log time / temperature) measured and
    predicted; "regret" the expected log regret of choosing by the predicted softmax.
    """

    hidden: tuple[int, ...] = (256, 256, 128)
    epochs: int = 40
    patience: int = 20
    problems: int = 32
    rows: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    dropout: float = 0.0
    averaging: float = 0.995  # of the weights over steps
    residual: bool = True
    focus: float = 3.0
    extern_share: float = 0.05
    ranking: Literal["none", "listwise", "regret"] = "listwise"
    rank: float = 0.1
    temperature: float = 0.1
    seed: int = 0


_HUBER = 0.3  # log time: beyond 30 % an error counts by its size, not its square
_MAX_STEPS_EPOCH = 2000
_ROWS_CHECKED = 1 << 15


def fit_network(
    train: Examples,
    held_out: Examples,
    settings: NetworkSettings | None = None,
    report: Report | None = None,
    device: str | None = None,
) -> Network:
    """Trains until the objective on the held-out problems has not improved for `patience`
    epochs, and keeps the best epoch. Calls `report` after each epoch; an exception in it ends
    the fit. The same seed on the same device and threads gives the same network."""
    import torch

    s = settings or NetworkSettings()
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(s.seed)
        return _fit(train, held_out, s, report, where)


def _fit(
    train: Examples,
    held_out: Examples,
    s: NetworkSettings,
    report: Report | None,
    where: torch.device,
) -> Network:
    import torch
    from torch import nn
    from torch.nn import functional

    low, high = train.x.min(axis=0), train.x.max(axis=0)
    mean = train.x.mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = train.x.std(axis=0, dtype=np.float64)
    scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0).astype(np.float32)
    base = _base(train, s)
    target = train.log_us - base
    middle = float(target.mean())

    sizes = (len(features.NAMES), *s.hidden, 1)
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
        if s.dropout:
            modules.append(nn.Dropout(s.dropout))
    net = nn.Sequential(*modules, nn.Linear(sizes[-2], 1)).to(where)
    averaged = copy.deepcopy(net).eval()

    x = torch.from_numpy((train.x - mean) * scale).to(where)
    y = torch.from_numpy(target - np.float32(middle)).to(where)
    offset = torch.from_numpy(np.broadcast_to(base, y.shape).copy()).to(where)
    weights = _draw_weights(train, s)
    # The range is the training rows', as the fitted network has it.
    checks = torch.from_numpy((np.clip(held_out.x, low, high) - mean) * scale).to(where)
    checks_base = _base(held_out, s) + np.float32(middle)
    ends = torch.from_numpy(np.cumsum(weights)).to(where)
    starts = torch.from_numpy(train.starts).to(where)
    counts = torch.from_numpy(train.counts).to(where)
    last = ends[starts + counts - 1]
    first = torch.cat([torch.zeros(1, dtype=last.dtype, device=where), last[:-1]])

    groups = len(train.starts)
    batch = min(s.problems, groups)
    steps = max(1, min(len(train.log_us) // (batch * s.rows), _MAX_STEPS_EPOCH))
    total = steps * s.epochs
    optimiser = torch.optim.AdamW(net.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, s.learning_rate, total_steps=total + 1, pct_start=0.05
    )
    best, best_state, waited, step = math.inf, copy.deepcopy(averaged.state_dict()), 0, 0
    for epoch in range(1, s.epochs + 1):
        net.train()
        for _ in range(steps):
            step += 1
            chosen = torch.randint(groups, (batch, 1), device=where)
            place = torch.rand(batch, s.rows, device=where, dtype=ends.dtype)
            place = first[chosen] + place * (last[chosen] - first[chosen])
            rows = torch.searchsorted(ends, place, right=True)
            rows = torch.clamp(rows, starts[chosen], starts[chosen] + counts[chosen] - 1)
            answer = net(x[rows]).squeeze(-1)
            loss = functional.huber_loss(answer, y[rows], delta=_HUBER) / _HUBER
            if s.ranking != "none" and s.rank:
                shown, truth = answer + offset[rows], y[rows] + offset[rows]
                loss = loss + s.rank * _ranking(shown, truth, s)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                keep = min(s.averaging, step / (step + 10))
                for mine, theirs in zip(averaged.parameters(), net.parameters(), strict=True):
                    mine.lerp_(theirs, 1 - keep)

        # With torch, although the fitted network is asked with numpy: the threads of the two
        # wait for each other's.
        with torch.no_grad():
            answers = [averaged(part).squeeze(-1) for part in checks.split(_ROWS_CHECKED)]
        predicted = torch.cat(answers).cpu().numpy() + checks_base
        progress = _progress(predicted, held_out, s, epoch)
        if progress.objective < best:
            best, waited = progress.objective, 0
            best_state = copy.deepcopy(averaged.state_dict())
        else:
            waited += 1
        if report is not None:
            report(progress)
        if waited >= s.patience:
            break
    averaged.load_state_dict(best_state)
    return _exported(averaged, low, high, mean, scale, middle, s)


def _base(examples: Examples, s: NetworkSettings) -> Matrix:
    base: Matrix = examples.x[:, features.BASE] * np.float32(math.log(2) if s.residual else 0)
    return base


def _draw_weights(train: Examples, s: NetworkSettings) -> npt.NDArray[np.float64]:
    """[n] how often a row is drawn, relative to the others of its problem."""
    weight = importance(train, s.focus).astype(np.float64)
    extern = train.x[:, features.NAMES.index("aten")] > 0
    all_of = np.repeat(np.add.reduceat(weight, train.starts), train.counts)
    externs = np.repeat(np.add.reduceat(extern.astype(np.int64), train.starts), train.counts)
    fair = s.extern_share * all_of / np.maximum(externs, 1)
    return np.where(extern, np.maximum(weight, fair), weight)


def _ranking(predicted: torch.Tensor, truth: torch.Tensor, s: NetworkSettings) -> torch.Tensor:
    """The mean over problems of the ranking loss; both are [problems, rows] log times."""
    import torch

    logits = torch.log_softmax(-predicted / s.temperature, dim=1)
    if s.ranking == "regret":
        gap = truth - truth.min(dim=1, keepdim=True).values
        return (logits.exp() * gap).sum(dim=1).mean()
    wanted = torch.softmax(-truth / s.temperature, dim=1)
    return -(wanted * logits).sum(dim=1).mean()


def _exported(
    net: torch.nn.Module,
    low: Matrix,
    high: Matrix,
    mean: Matrix,
    scale: Matrix,
    middle: float,
    s: NetworkSettings,
) -> Network:
    from torch import nn

    layers: list[tuple[Matrix, Matrix]] = []
    for module in net.modules():
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().cpu().numpy().T
            layers.append((np.ascontiguousarray(weight), module.bias.detach().cpu().numpy().copy()))
    layers[-1] = (layers[-1][0], layers[-1][1] + np.float32(middle))
    return Network(low, high, mean, scale, tuple(layers), s.residual)


def _progress(predicted: Matrix, held_out: Examples, s: NetworkSettings, epoch: int) -> Progress:
    error = predicted - held_out.log_us
    size = np.abs(error)
    huber = np.where(size < _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2)) / _HUBER
    weight = importance(held_out, s.focus)
    objective = float(np.average(huber, weights=weight))
    if s.ranking != "none" and s.rank:
        objective += s.rank * ranking_loss(held_out, predicted, s.temperature)
    return Progress(
        epoch,
        s.epochs,
        float(np.sqrt(np.mean(error**2))),
        efficiency(held_out, predicted),
        objective,
    )
