"""A problem's inputs on a device, and the result that kernels must compute from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from diode_engine.core.operators.specification import TensorShape
from diode_engine.core.problem import Problem


def random_inputs(problem: Problem, device: torch.device) -> list[torch.Tensor]:
    """The op's inputs in its order: random numbers, or what the op itself makes for timing (see
    SideInput.values)."""
    made = made_inputs(problem, device)
    generator = torch.Generator(device).manual_seed(0)
    return [
        made[name] if name in made else fill(empty(shape, device), generator)
        for name, shape in problem.input_shapes().items()
    ]


def fill(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Fills the tensor with normal random numbers, or, if it is of whole numbers, with numbers from
    all that its type can hold. Returns the tensor."""
    if not tensor.is_floating_point():
        limits = torch.iinfo(tensor.dtype)
        return tensor.random_(limits.min, limits.max + 1, generator=generator)
    if tensor.dtype.itemsize > 1:
        return tensor.normal_(generator=generator)
    drawn = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    return tensor.copy_(drawn)


def made_inputs(problem: Problem, device: torch.device) -> dict[str, torch.Tensor]:
    """The inputs, by name, that are not simply random numbers of the operands' type."""
    shapes = problem.input_shapes()
    made: dict[str, torch.Tensor] = {}
    for each in problem.op.side_inputs:
        if each.name not in shapes:
            continue
        generator = torch.Generator(device).manual_seed(0)
        shape = shapes[each.name]
        value = None if each.values is None else each.values(torch, shape, problem, generator)
        if value is not None:
            made[each.name] = value
        elif each.dtype is not None:
            made[each.name] = fill(empty(shape, device), generator)
    return made


def other_inputs(problem: Problem, inputs: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """More inputs of the op, with which a candidate is timed too (see SideInput.others): for each
    other value of a side input, `inputs` with that value in its place."""
    shapes = problem.input_shapes()
    found = []
    for each in problem.op.side_inputs:
        if each.others is not None and each.name in shapes:
            place = list(shapes).index(each.name)
            generator = torch.Generator(inputs[0].device)
            values = each.others(torch, shapes[each.name], problem, generator)
            found += [[*inputs[:place], value, *inputs[place + 1 :]] for value in values]
    return found


def empty(shape: TensorShape, device: torch.device | str) -> torch.Tensor:
    """A tensor of this shape, not initialised."""
    size, stride, dtype = shape
    return torch.empty_strided(size, stride, dtype=getattr(torch, dtype), device=device)


def empty_output(problem: Problem, device: torch.device) -> torch.Tensor:
    """A tensor for the op's output, not initialised."""
    dtype = getattr(torch, problem.out_dtype)
    return torch.empty(problem.output_size, dtype=dtype, device=device)


def reference(problem: Problem, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of the op's reference for these inputs; every kernel's result must be close to
    it."""
    result: torch.Tensor = problem.op.function(torch, problem)(*inputs)
    return result
