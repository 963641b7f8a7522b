"""Runs torch.compile on a GPU: checks results against eager's, and times kernels and compiles.

The question is {"model": folder or null, "hardware": the model's, "problems": [...]}; a model of
null stands for Inductor without Diode. The first answer is {"gpu": name}, and one for each problem
follows. Where there is no GPU like the model's, the answer is {"gpu": null} alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import diode_engine
from diode_engine.collect.workers.inputs import random_inputs
from diode_engine.collect.workers.timer import Timer, is_right
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.problem import Problem
from diode_engine.errors import IntegrationError
from diode_engine.inductor.lowering import kernels
from diode_engine.registry import MIN_LIKENESS

MODE = "max-autotune-no-cudagraphs"


def measure(question: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Answers the question (see the module). Raises IntegrationError where Diode cannot be
    installed."""
    model = question["model"]
    trained_on = Hardware.from_dict(question["hardware"])
    hardware = detect()
    if hardware.backend == "cpu" or hardware.likeness(trained_on) < MIN_LIKENESS:
        yield {"gpu": None}
        return
    yield {"gpu": hardware.name}
    diode_engine.uninstall_diode_choices()
    if model is not None and not diode_engine.install_diode_choices(model, top_k_configs=1):
        raise IntegrationError(str(diode_engine.get_stats()["reason"]))
    device = torch.device("cuda", torch.cuda.current_device())
    timer = Timer(device)
    # What a process does only once (imports, compile workers, driver) must not count as part of the
    # first product's compile.
    torch.compile(lambda x: x.sin() + 1, mode=MODE)(torch.ones(1024, device=device))
    for given in question["problems"]:
        yield _measured(Problem.from_dict(given), device, timer)


def _measured(problem: Problem, device: torch.device, timer: Timer) -> Mapping[str, Any]:
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
