"""Makes a model from timings: fits it, judges it on held-out problems, and registers it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine import registry
from diode_engine.core.table import TimingTable
from diode_engine.models.manifest import Data, check_name
from diode_engine.models.model_types import member_types
from diode_engine.training import training_stages as stages
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fine_tune import check_base
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.settings import TrainingRequest
from diode_engine.training.trainable_rows import TrainingSplit, gpus_of, one_environment


@dataclass(frozen=True)
class Trained:
    """The result of a training. `problems` and `timings` count what the model was fitted to and
    what early stopping watched. `left_out` counts the successful timings of other hardware or other
    versions of torch and Triton, by the name of these. `seconds` is how long it took."""

    model: registry.ModelVersion
    problems: int
    timings: int
    held_out_problems: int
    left_out: Mapping[str, int]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
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


def split_timings(table: TimingTable, request: TrainingRequest) -> TrainingSplit:
    """Return the timings that the requested training takes, and which of their problems it holds
    out. Raises TrainingError where they are too few, or there is no such family; RegistryError
    where the model could not be registered."""
    member_types(request.model_family)
    check_name(request.model_name)
    if request.base is None:
        split = TrainingSplit.make(table, request.hardware)
    else:
        # It is tuned to one GPU, and cannot be judged on problems that its base has learned from.
        hardware = gpus_of(one_environment(table, request.hardware))[0]
        split = TrainingSplit.make(table, hardware.name, request.base.manifest.held_out_by)
        check_base(request.base, split.hardware)
    registry.check_registrable(request.model_name, split.hardware)
    return split


def train(
    split: TrainingSplit,
    request: TrainingRequest,
    origin: Data,
    *,
    report: FitCallback = lambda label, progress: None,
    begin_phase: Callable[[str], None] = lambda what: None,
    checkpoints: Checkpoints | None = None,
    fits: FitExecutor = IN_THIS_PROCESS,
) -> Trained:
    """Fits the requested model to the timings of `split_timings`, which come from `origin`, and
    registers it as the next version of its name.

    Its metrics are those on the held-out problems, which it has not seen. Its confidence is learned
    from the other problems; a tuned model has its base's, unless that was made for another GPU. The
    metrics of a model of all problems are those of the first model, and its notes say so.

    `begin_phase` is called with what is done besides the fits, and `report` with their progress.
    With `checkpoints`, a training that was interrupted continues where it was.

    Raises TrainingError where there are too few timings.
    """
    began = time.monotonic()
    begin_phase("makes the features of the kernels")
    members = stages.fit_members(
        split, request, report=report, checkpoints=checkpoints, fits=fits, begin_phase=begin_phase
    )
    begin_phase("fits the confidence")
    model = stages.make_model(split.learned, request, origin, members.own)
    model = stages.add_confidence(model, split, request, members.folds)
    begin_phase("judges the model on the held-out problems")
    model = stages.judge_model(model, split, request.base)
    if members.everything is not None:
        of_all = stages.make_model(split.all_learnable, request, origin, members.everything)
        model = stages.complete_model_of_all(of_all, model, split)
    version = stages.register_model(model, default=request.default)
    if checkpoints is not None:
        checkpoints.clear()
    data = model.manifest.data
    return Trained(
        model=version,
        problems=data.problems,
        timings=data.timings,
        held_out_problems=split.held_out_problems,
        left_out=split.left_out,
        seconds=time.monotonic() - began,
    )
