"""Programs to be compiled alone: the products of shapesets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from diode_engine.core.problem import Problem
from diode_engine.problems.sources import read_shapeset
from zoo_models.record import Built, Model

OPS = ("mm", "addmm", "bmm", "baddbmm")  # whose inputs are random numbers of the operands' type


class Product(nn.Module):
    """The operator of one problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.operator = problem.op.function(torch, problem)

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.operator(*operands)


def products(path: Path) -> list[Model]:
    """The products of a shapeset, or of all in a folder, whose operands are not in the cache when
    they are timed. Raises DatasetError."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [
        Model(
            f"{file.stem} {problem}{_bias(problem)}", f"product, {kind(problem)}", "written",
            partial(_build, problem), getattr(torch, problem.dtype), tf32=problem.allow_tf32,
            cold=True,
        )
        for file in files
        for problem in read_shapeset(file).problems(0)
        if str(problem.op) in OPS
    ]  # fmt: skip


def _bias(problem: Problem) -> str:
    return "" if problem.bias == "none" else f" bias {problem.bias}"


def _build(problem: Problem) -> Built:
    operands = (
        torch.empty_strided(size, stride, dtype=getattr(torch, dtype)).normal_()
        for size, stride, dtype in problem.input_shapes().values()
    )
    return Product(problem), tuple(operands)


def kind(problem: Problem) -> str:
    """What the report has figures of."""
    if problem.dtype == "float32":
        return "TF32" if problem.allow_tf32 else "float32"
    strides = min(problem.a.align, problem.b.align)
    aligned = strides >= 8 and problem.N % 8 == problem.K % 8 == 0
    return "half aligned" if aligned else "half odd"
