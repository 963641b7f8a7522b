"""What Inductor takes with a model installed, on a machine without that GPU.

The question is {"model": folder, "problems": [...]}. The answers are, for each problem, the kernel
that Inductor's real lowering takes and the time predicted for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import diode_engine
from diode_engine.collect.workers.inputs import empty
from diode_engine.core.problem import Problem
from diode_engine.errors import IntegrationError
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.without_gpu import lower, pretend
from diode_engine.models.artifact import load_manifest


def choose(question: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Answer the question (see the module). For the rest of the process it pretends that the
    model's GPU is in this machine."""
    pretend(load_manifest(Path(question["model"])).hardware)
    if not diode_engine.install_diode_choices(question["model"], top_k_configs=1):
        raise IntegrationError(str(diode_engine.get_stats()["reason"]))
    for given in question["problems"]:
        problem = Problem.from_dict(given)
        with kernels.tf32(problem.allow_tf32), diode_engine.profile_predictions() as profile:
            lower(partial(_program, problem))
        if not profile.selections:
            raise IntegrationError(f"Inductor did not ask for a kernel for {problem}.")
        choice = profile.selections[0]  # the problem's own; the parts of decompose_k come after it
        yield {
            "chosen": choice.candidates[0].to_dict(),
            "predicted_us": choice.predicted_us[0],
        }


def _program(problem: Problem) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
    inputs = [empty(shape, "cuda") for shape in problem.input_shapes().values()]
    return problem.op.function(torch, problem), inputs
