"""Operands for timing, on the CPU."""

import pytest
import torch

from diode_engine.collect.workers.inputs import made_inputs, random_inputs, reference
from diode_engine.core.problem import Problem

CPU = torch.device("cpu")


@pytest.mark.parametrize("op", ["addmm", "baddbmm"])
@pytest.mark.parametrize("n", [1, 24])
def test_a_bias_of_one_element_is_written_out_behind_it(op, n):
    """Inductor's kernels read it with the strides of the output, the library reads the element."""
    batch = {"B": 3} if op == "baddbmm" else {}
    problem = Problem.make(op, 40, n, 16, "float32", bias="scalar", **batch)
    inputs = random_inputs(problem, CPU)
    bias, a, b = inputs
    assert bias.shape == (1,)
    size = problem.output_size
    read = bias.as_strided(size, torch.empty(size).stride())
    assert torch.equal(read, bias.expand(size))
    torch.testing.assert_close(reference(problem, inputs), read + a @ b)


@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("inner", [("inner", "inner"), ("inner", "outer"), ("outer", "inner")])
def test_operands_whose_batch_is_innermost(a_layout, inner):
    problem = Problem.make(
        "bmm", 12, 20, 28, "float32", B=7, a_layout=a_layout, a_batch=inner[0], b_batch=inner[1]
    )
    inputs = random_inputs(problem, CPU)
    for x, where in zip(inputs, inner, strict=True):
        assert (x.stride(0) == 1) == (where == "inner")
        assert sorted(x.flatten().tolist()) == sorted(x.as_strided((x.numel(),), (1,)).tolist())
    a, b = inputs
    torch.testing.assert_close(reference(problem, inputs), a.contiguous() @ b.contiguous())


@pytest.mark.parametrize("bias", ["vector", "column", "matrix"])
def test_other_biases_are_at_another_place_for_each_launch(bias):
    assert not made_inputs(Problem.make("addmm", 40, 24, 16, "float32", bias=bias), CPU)
