"""Fits a network with torch, on a GPU where there is one."""

from __future__ import annotations

import copy
import math
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.documents import shortened
from diode_engine.errors import TrainingError
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
    unpack,
)
from diode_engine.models.fitting_method import FittingMethod, Range
from diode_engine.models.network import Network
from diode_engine.models.protocol import Matrix

if TYPE_CHECKING:
    import torch

Ranking = Literal["none", "listwise", "regret", "pairwise"]


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is fitted.

    A step draws `problems` problems and `rows` candidates of each, by importance (see
    fitting.importance; `focus`). ATen's kernels are drawn in about `extern_share` of the cases:
    they are few, and the choice between them and others matters.

    The loss is Huber's of log time plus `rank` times a ranking loss over the drawn rows of a
    problem, of log times over the temperature. "listwise" is the divergence of the predicted
    softmax(−log time) from the measured one (ListNet); "regret" is the expected log regret of
    choosing by the predicted softmax; "pairwise" is the logistic loss of each pair's order
    (RankNet, Burges et al., ICML 2005), weighted by how far apart its times are.
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
    ranking: Ranking = "listwise"
    rank: float = 0.1
    temperature: float = 0.1
    seed: int = 0

    def with_fewer_steps(self, divisor: int) -> NetworkSettings:
        return replace(self, epochs=max(self.epochs // divisor, 1))

    @property
    def width(self) -> int:
        """The width of the first hidden layer."""
        return self.hidden[0]

    @property
    def layers(self) -> int:
        """The number of hidden layers."""
        return len(self.hidden)

    def with_searched(self, **values: Any) -> NetworkSettings:
        """As FitSettings.with_searched. The last hidden layer is half as wide as the others, as in
        the networks that were compared by hand."""
        width, layers = values.pop("width"), values.pop("layers")
        return replace(self, hidden=(width,) * (layers - 1) + (width // 2,), **values)


_HUBER = 0.3  # log time: beyond 30 % an error counts by its size, not its square
_MAX_STEPS_EPOCH = 2000
_ROWS_CHECKED = 1 << 15


def fit_network(
    train: Examples,
    held_out: Examples,
    settings: NetworkSettings,
    report: ProgressCallback = lambda progress: None,
    checkpoint: Checkpoint | None = None,
    *,
    device: str | None = None,
) -> Network:
    """Trains until the objective on the held-out problems has not improved for `patience` epochs,
    and returns the best epoch. Raises TrainingError where the machine has too little memory for the
    network.

    `report` is called after each epoch; an exception in it ends the fit. The same seed on the same
    device and threads gives the same network. With a `checkpoint` the fit continues after the last
    saved epoch, reports the earlier epochs again, and gives the same network as a fit without
    interruption. Where the training examples have `heads`, the network has an output for each of
    them.
    """
    import torch

    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        try:
            fit = _NetworkFit(train, held_out, settings, where)
        except RuntimeError as error:
            if "DefaultCPUAllocator" not in str(error):
                raise
            raise TrainingError(
                f"This machine has too little memory for layers of {max(settings.hidden)} units; "
                "train narrower ones with --hidden."
            ) from error
        return fit.run(report, checkpoint)


class _NetworkFit:
    """A fit in progress: its data and its state."""

    def __init__(
        self,
        train: Examples,
        held_out: Examples,
        s: NetworkSettings,
        where: torch.device,
    ) -> None:
        import torch
        from torch import nn

        self.s, self.where, self.held_out = s, where, held_out
        low, high = train.x.min(axis=0), train.x.max(axis=0)
        mean = train.x.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = train.x.std(axis=0, dtype=np.float64)
        scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0).astype(np.float32)
        self.inputs = low, high, mean, scale
        base = train.base(residual=s.residual)
        target = (train.log_us[None] if train.heads is None else train.heads) - base
        self.middle = float(target.mean())

        sizes = (len(features.NAMES), *s.hidden)
        modules: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            modules += [nn.Linear(inputs, outputs), nn.ReLU()]
            if s.dropout:
                modules.append(nn.Dropout(s.dropout))
        self.net = nn.Sequential(*modules, nn.Linear(sizes[-1], len(target))).to(where)
        self.averaged = copy.deepcopy(self.net).eval()

        self.x = torch.from_numpy((train.x - mean) * scale).to(where)
        centred = np.ascontiguousarray((target - np.float32(self.middle)).T)
        self.y = torch.from_numpy(centred).to(where)
        self.offset = torch.from_numpy(np.broadcast_to(base, len(train.log_us)).copy()).to(where)
        weights = _draw_weights(train, s)
        # Clipped to the range of the training rows, as the fitted network does it.
        clipped = np.clip(held_out.x, low, high)
        self.checks = torch.from_numpy((clipped - mean) * scale).to(where)
        self.checks_base = held_out.base(residual=s.residual) + np.float32(self.middle)
        self.ends = torch.from_numpy(np.cumsum(weights)).to(where)
        self.starts = torch.from_numpy(train.starts).to(where)
        self.counts = torch.from_numpy(train.counts).to(where)
        self.last = self.ends[self.starts + self.counts - 1]
        zero = torch.zeros(1, dtype=self.last.dtype, device=where)
        self.first = torch.cat([zero, self.last[:-1]])

        self.batch = min(s.problems, len(train.starts))
        steps = len(train.log_us) // (self.batch * s.rows)
        self.steps = max(1, min(steps, _MAX_STEPS_EPOCH))
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, s.learning_rate, total_steps=self.steps * s.epochs + 1, pct_start=0.05
        )
        self.best = copy.deepcopy(self.averaged.state_dict())
        self.history: list[FitProgress] = []

    def run(self, report: ProgressCallback, checkpoint: Checkpoint | None) -> Network:
        saved = checkpoint.load() if checkpoint is not None else None
        if saved is not None:
            self.restore(saved)
            for progress in self.history:
                report(progress)
        while len(self.history) < self.s.epochs and self.waited() < self.s.patience:
            progress = self.epoch()
            if not math.isfinite(progress.objective + progress.train_objective):
                raise TrainingError(
                    f"The network's errors grew beyond all numbers with a learning rate of "
                    f"{self.s.learning_rate:g}; train with a smaller --learning-rate."
                )
            self.history.append(progress)
            if self.waited() == 0:
                self.best = copy.deepcopy(self.averaged.state_dict())
            if checkpoint is not None:
                checkpoint.save(self.state)
            report(progress)
        self.averaged.load_state_dict(self.best)
        return _exported(self.averaged, self.inputs, self.middle, self.s)

    def waited(self) -> int:
        """Epochs since the best one."""
        if not self.history:
            return 0
        return len(self.history) - min((p.objective, p.step) for p in self.history)[1]

    def epoch(self) -> FitProgress:
        import torch

        self.net.train()
        loss = torch.zeros((), device=self.where)
        for step in range(self.steps):
            loss += self.step(len(self.history) * self.steps + step + 1)
        # Evaluated by torch, although the fitted network is evaluated by numpy: when both are used
        # in turns, the threads of one wait for those of the other.
        with torch.no_grad():
            answers = [self.averaged(part).mean(-1) for part in self.checks.split(_ROWS_CHECKED)]
        predicted = torch.cat(answers).cpu().numpy() + self.checks_base
        mean = float(loss) / self.steps
        return _progress(predicted, self.held_out, self.s, len(self.history) + 1, mean)

    def step(self, number: int) -> torch.Tensor:
        """One step of the optimiser; its loss."""
        import torch
        from torch import nn
        from torch.nn import functional

        s, starts, counts, first = self.s, self.starts, self.counts, self.first
        chosen = torch.randint(len(starts), (self.batch, 1), device=self.where)
        place = torch.rand(self.batch, s.rows, device=self.where, dtype=self.ends.dtype)
        place = first[chosen] + place * (self.last[chosen] - first[chosen])
        rows = torch.searchsorted(self.ends, place, right=True)
        rows = torch.clamp(rows, starts[chosen], starts[chosen] + counts[chosen] - 1)
        answer, truth = self.net(self.x[rows]), self.y[rows]
        loss = functional.huber_loss(answer, truth, delta=_HUBER) / _HUBER
        if s.ranking != "none" and s.rank:
            offset = self.offset[rows]
            loss = loss + s.rank * _ranking(answer.mean(-1) + offset, truth.mean(-1) + offset, s)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimiser.step()
        self.schedule.step()
        with torch.no_grad():
            keep = min(s.averaging, number / (number + 10))
            for mine, theirs in zip(self.averaged.parameters(), self.net.parameters(), strict=True):
                mine.lerp_(theirs, 1 - keep)
        return loss.detach()

    def state(self) -> bytes:
        import torch

        optimiser = self.optimiser.state_dict()
        tensors = {
            **_named("net", self.net.state_dict()),
            **_named("averaged", self.averaged.state_dict()),
            **_named("best", self.best),
            "random": torch.get_rng_state(),
        }
        for place, of_one in optimiser["state"].items():
            tensors |= _named(f"optimiser.{place}", of_one)
        if self.where.type == "cuda":
            tensors["random cuda"] = torch.cuda.get_rng_state(self.where)
        facts = {
            "history": [astuple(p) for p in self.history],
            "groups": optimiser["param_groups"],
            "schedule": self.schedule.state_dict(),
        }
        return pack({name: tensor.cpu().numpy() for name, tensor in tensors.items()}, facts)

    def restore(self, saved: bytes) -> None:
        """Raises CheckpointError where it is not a state of this fit; this object must not be used
        then."""
        arrays, facts = unpack(saved)
        try:
            self._restore(arrays, facts)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"A checkpoint is of another fit ({shortened(str(error))}); remove it."
            ) from None

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: Any) -> None:
        import torch

        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

        def under(prefix: str) -> dict[str, torch.Tensor]:
            start = f"{prefix}."
            return {n[len(start) :]: t for n, t in tensors.items() if n.startswith(start)}

        self.net.load_state_dict(under("net"))
        self.averaged.load_state_dict(under("averaged"))
        self.best = {name: tensor.to(self.where) for name, tensor in under("best").items()}
        parameters = len(list(self.net.parameters()))
        self.optimiser.load_state_dict(
            {
                "state": {place: under(f"optimiser.{place}") for place in range(parameters)},
                "param_groups": [
                    {**group, "betas": tuple(group["betas"])} for group in facts["groups"]
                ],
            }
        )
        self.schedule.load_state_dict(facts["schedule"])
        self.history = history_of(facts["history"])
        torch.set_rng_state(tensors["random"])
        if self.where.type == "cuda":
            torch.cuda.set_rng_state(tensors["random cuda"], self.where)


def _named(prefix: str, tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _draw_weights(train: Examples, s: NetworkSettings) -> npt.NDArray[np.float64]:
    """[n] how likely a row is drawn, relative to the other rows of its problem."""
    weight = importance(train, s.focus).astype(np.float64)
    extern = train.x[:, features.NAMES.index("aten")] > 0
    all_of = np.repeat(np.add.reduceat(weight, train.starts), train.counts)
    externs = np.repeat(np.add.reduceat(extern.astype(np.int64), train.starts), train.counts)
    fair = s.extern_share * all_of / np.maximum(externs, 1)
    return np.where(extern, np.maximum(weight, fair), weight)


def _ranking(predicted: torch.Tensor, truth: torch.Tensor, s: NetworkSettings) -> torch.Tensor:
    """The mean over problems of the ranking loss; both are [problems, rows] log times."""
    import torch
    from torch.nn import functional

    if s.ranking == "pairwise":
        apart = truth[:, :, None] - truth[:, None, :]  # > 0: the second is faster
        shown = predicted[:, :, None] - predicted[:, None, :]
        weight = apart.clamp(min=0, max=1)
        loss = functional.softplus(-shown / s.temperature) * weight
        return loss.sum() / weight.sum().clamp(min=1e-6)
    logits = torch.log_softmax(-predicted / s.temperature, dim=1)
    if s.ranking == "regret":
        gap = truth - truth.min(dim=1, keepdim=True).values
        return (logits.exp() * gap).sum(dim=1).mean()
    wanted = torch.log_softmax(-truth / s.temperature, dim=1)
    return (wanted.exp() * (wanted - logits)).sum(dim=1).mean()


def _exported(
    net: torch.nn.Module,
    inputs: tuple[Matrix, Matrix, Matrix, Matrix],
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
    return Network(*inputs, tuple(layers), s.residual)


def _progress(
    predicted: Matrix, held_out: Examples, s: NetworkSettings, epoch: int, train_objective: float
) -> FitProgress:
    error = predicted - held_out.log_us
    size = np.abs(error)
    huber = np.where(size < _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2)) / _HUBER
    weight = importance(held_out, s.focus)
    objective = float(np.average(huber, weights=weight))
    if s.ranking != "none" and s.rank:
        objective += s.rank * ranking_loss(held_out, predicted, s.temperature)
    return FitProgress(
        epoch,
        s.epochs,
        float(np.sqrt(np.mean(error**2))),
        efficiency(held_out, predicted),
        objective,
        train_objective,
    )


FITTING = FittingMethod(
    NetworkSettings(),
    fit_network,
    {
        "learning_rate": Range(5e-4, 8e-3, log=True),
        "weight_decay": Range(1e-4, 0.1, log=True),
        "dropout": Range(0.0, 0.2),
        "focus": Range(0.5, 12.0, log=True),
        "rank": Range(0.01, 1.0, log=True),
        "temperature": Range(0.03, 0.3, log=True),
        "width": (64, 96, 128, 192, 256, 384),
        "layers": Range(2, 4),
    },
)
