"""The products of a program, by Inductor's own lowering without generating code."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from harvest_models.programs import Program
from torch._dynamo.utils import detect_fake_mode
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering
from zoo_lowering import _SETTINGS, _captured, _on_gpu, _timed, _traced
from zoo_ways import WAYS

from diode_engine.hardware import H200
from diode_engine.inductor import without_gpu
from diode_engine.problem import Problem


class _Known(BaseException):
    """All kernels of a graph are known; no Exception, which Inductor would make one of its own."""


def products(program: Program) -> tuple[list[Problem], list[str]]:
    """(a problem for each time that the program asks for a kernel, forward and then backward; what
    it asked for that is no problem of Diode's)."""
    without_gpu.pretend(H200)
    torch.set_float32_matmul_precision("high" if program.tf32 else "highest")
    notes: list[dict[str, Any]] = []
    plain = WAYS["plain"]
    with (
        plain.installed(),
        _captured(notes),
        torch._dynamo.config.patch(specialize_float=True),
    ):
        torch._dynamo.reset()
        graphs = _traced(program.in_zoo())
        torch._dynamo.reset()
        with without_gpu.lowering({**_SETTINGS, **plain.options}), _timed(), torch.no_grad(), _no_code():
            for graph in graphs:
                with detect_fake_mode(graph.inputs) or contextlib.nullcontext():
                    moved = _on_gpu(graph)
                    with contextlib.suppress(_Known):
                        compile_fx(*moved)
    found = [Problem.from_dict(note["problem"]) for note in notes if "problem" in note]
    return found, sorted({note["left_out"] for note in notes if "left_out" in note})


def _no_code() -> Any:
    """Has Inductor stop where it knows all kernels and would generate code."""
    return mock.patch.object(GraphLowering, "compile_to_module", side_effect=_Known)
