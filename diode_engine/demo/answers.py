"""Answers to the demonstration's questions: what Inductor chooses, and how fast that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import diode_engine
from diode_engine.collect.workers.inputs import empty, random_inputs
from diode_engine.collect.workers.timer import Timer, is_right
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.problem import Problem
from diode_engine.errors import IntegrationError
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.without_gpu import lower, pretend
from diode_engine.models.artifact import load_manifest
from diode_engine.registry import MIN_LIKENESS

MODE = "max-autotune-no-cudagraphs"


def choose(question: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What Inductor takes with a model installed, on a machine without that GPU.

    The question is {"model": folder, "problems": [...]}. The answers are, for each problem, the
    kernel that Inductor's real lowering takes and the time predicted for it. For the rest of the
    process it pretends that the model's GPU is in this machine.
    """
    pretend(load_manifest(Path(question["model"])).hardware)
    _install(question["model"])
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


def _install(model: str) -> None:
    if not diode_engine.install_diode_choices(model, top_k_configs=1):
        raise IntegrationError(str(diode_engine.get_stats()["reason"]))


def _program(problem: Problem) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
    inputs = [empty(shape, "cuda") for shape in problem.input_shapes().values()]
    return problem.op.function(torch, problem), inputs


def measure(question: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Runs torch.compile on a GPU: checks results against eager's, and times kernels and compiles.

    The question is {"model": folder or null, "hardware": the model's, "problems": [...]}; a model
    of null stands for Inductor without Diode. An answer for each problem follows, or
    {"gpu": null} alone where there is no GPU like the model's.
    """
    trained_on = Hardware.from_dict(question["hardware"])
    hardware = detect()
    if hardware.backend == "cpu" or hardware.likeness(trained_on) < MIN_LIKENESS:
        yield {"gpu": None}
        return
    diode_engine.uninstall_diode_choices()
    if question["model"] is not None:
        _install(question["model"])
    device = torch.device("cuda", torch.cuda.current_device())
    timer = Timer(device)
    # What a process does only once (imports, compile workers, driver) must not count as part of the
    # first product's compile.
    torch.compile(lambda x: x.sin() + 1, mode=MODE)(torch.ones(1024, device=device))
    for given in question["problems"]:
        yield {"gpu": hardware.name, **_measure(Problem.from_dict(given), device, timer)}


def _measure(problem: Problem, device: torch.device, timer: Timer) -> Mapping[str, Any]:
    function = problem.op.function(torch, problem)
    inputs = random_inputs(problem, device)
    with kernels.tf32(problem.allow_tf32):
        reference = function(*inputs)
        eager = timer.time(lambda: function(*inputs))
        torch.compiler.reset()
        compiled = torch.compile(lambda *tensors: function(*tensors), mode=MODE, dynamic=False)
        before = diode_engine.get_stats()["model_selections"]
        torch.cuda.synchronize()
        began = time.perf_counter()
        result = compiled(*inputs)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        right = is_right(
            result, reference, tf32=problem.allow_tf32, dtype=getattr(torch, problem.dtype)
        )
        timing = timer.time(lambda: compiled(*inputs))
    return {
        "eager_us": eager.time_us,
        "us": timing.time_us,
        "compile_s": seconds,
        "right": right,
        "chosen_by_model": diode_engine.get_stats()["model_selections"] != before,
    }
