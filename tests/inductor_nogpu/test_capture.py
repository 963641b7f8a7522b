"""What a program compiles is written down, and nothing is benchmarked for it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from diode_engine.collect.capture import run
from diode_engine.core.problem import Problem
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import OPS


def problems(notes: list[dict[str, Any]]) -> list[Problem]:
    found = [note["product"]["problem"] for note in notes if "product" in note]
    return list(dict.fromkeys(Problem.from_dict(fields) for fields in found if fields))


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("op", OPS)
def test_every_op_is_captured_and_left_to_aten(op, mode, notes):
    lowered = lower(OPS[op], mode=mode)  # raises where something is to be benchmarked
    expected = Problem.make(op, 512, 768, 1024, "bfloat16", B=4 if "b" in op[:1] else 1)
    assert problems(notes) == [expected]
    assert "extern_kernels" in lowered.sources[0]
    assert "triton_heuristics.template" not in lowered.sources[0]


def test_without_a_library_choice_inductor_decides(notes):
    lowered = lower(
        OPS["mm"], options={"max_autotune_gemm_backends": "TRITON"}, benchmark=lambda _: 1.0
    )
    assert len(lowered.seen[0].candidates) > 5
    assert len(problems(notes)) == 1


PROGRAM = """
import sys
import torch
from diode_engine.inductor import without_gpu
without_gpu.pretend()
def build():
    a, b = (torch.empty(*s, dtype=torch.float16, device="cuda") for s in ((64, 96), (96, 128)))
    return (lambda a, b: torch.relu(a @ b), (a, b))
without_gpu.lower(build)
print("its own output")
sys.exit(7)
"""


def test_a_program_is_captured_from_outside():
    captured = run([sys.executable, "-c", PROGRAM])
    assert captured.problems == (Problem.make("mm", 64, 128, 96, "float16"),)
    assert captured.exit_code == 7
    assert not captured.left_out
