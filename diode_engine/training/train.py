"""Makes a model from timings: fits it, judges it on held-out problems, and registers it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diode_engine import registry
from diode_engine.core.table import TimingTable
from diode_engine.models.manifest import check_name
from diode_engine.models.model_types import TUNED, member_types
from diode_engine.problems import splits
from diode_engine.training import training_stages as stages
from diode_engine.training.fine_tune import check_base
from diode_engine.training.trainable_rows import TrainingSplit, gpus_of, one_environment
from diode_engine.training.training_stages import TrainingMethod


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


def train(
    table: TimingTable,
    method: TrainingMethod,
    *,
    hardware: str | None = None,
    everything: bool = False,
    default: bool = False,
    begin_phase: Callable[[str], None] = lambda what: None,
) -> Trained:
    """Fits a model by the method for the GPU named `hardware` and registers it as the next version
    of its name; with `default`, as the default model of that GPU.

    Its metrics are those on the held-out problems (`splits.split`), which it has not seen. Its
    confidence is learned from the other problems; a tuned model has its base's, unless that was
    made for another GPU. With `everything`, a second model is fitted to all problems, and this one
    is registered; the metrics remain those of the first, and the notes say so. `begin_phase` is
    called with what is done before and after the fits, which the method's `report` follows.

    Raises TrainingError where there are too few timings; RegistryError, before anything is fitted,
    where the model could not be registered.
    """
    began = time.monotonic()
    base = method.base
    family = method.family if base is None else TUNED
    member_types(family)
    name = check_name(method.name or (family if base is None else base.manifest.name))
    method = replace(method, family=family, name=name)
    # A tuned model cannot be judged on problems that its base has learned from.
    by = splits.HELD_OUT_BY if base is None else base.manifest.held_out_by
    if base is not None:  # it is tuned to one GPU
        hardware = gpus_of(one_environment(table, hardware))[0].name
    split = TrainingSplit.make(table, hardware, by)
    if base is not None:
        check_base(base, split.hardware)
    registry.check_registrable(method.name, split.hardware)
    begin_phase("makes the features of the kernels")
    members = stages.fit_members(split, method, everything=everything)
    begin_phase("fits the confidence")
    model = stages.make_model(split.learned, method, members.own)
    model = stages.add_confidence(model, split, method, members.folds)
    begin_phase("judges the model on the held-out problems")
    model = stages.judge_model(model, split, method)
    if members.everything is not None:
        model = stages.make_model_of_all(model, split, method, members.everything)
    version = stages.register_model(model, default=default)
    if method.checkpoints is not None:
        method.checkpoints.clear()
    data = model.manifest.data
    return Trained(
        model=version,
        problems=data.problems,
        timings=data.timings,
        held_out_problems=split.held_out_problems,
        left_out=split.left_out,
        seconds=time.monotonic() - began,
    )
