"""The EXHAUSTIVE space and its size as validation and plans tell them, against what Inductor
offers."""

from __future__ import annotations

import pytest
import torch

from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering import kernels
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.sources import mixed
from diode_engine.problems.space_size import SpaceSize, space_size
from tests.inductor_nogpu.conftest import whole_spaces

CHOSEN = [
    Problem.make("mm", 1024, 1024, 1024, "bfloat16"),
    Problem.make("mm", 64, 4096, 1024, "bfloat16", b_layout="col"),
    Problem.make("mm", 17, 4096, 1001, "float16"),  # no TMA
    Problem.make("mm", 32, 96, 4096, "float16"),  # K may be split
    Problem.make("mm", 8, 64, 8192, "float16"),  # K is split
    Problem.make("mm", 32, 96, 20160, "float16"),  # in more ways than DEFAULT tries
    Problem.make("mm", 512, 1, 4096, "float16", b_layout="col"),
    Problem.make("addmm", 100, 100, 100, "float32", allow_tf32=True),
    Problem.make("addmm", 5, 128, 64, "float32", bias="matrix"),
    Problem.make("bmm", 33, 100, 100, "float16", B=4),
    Problem.make("baddbmm", 1, 64, 100, "bfloat16", B=4),
]


@pytest.mark.parametrize("problem", CHOSEN + mixed(12, 5), ids=str)
def test_the_space_is_what_inductor_offers(problem: Problem) -> None:
    with whole_spaces(), kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        offered = set(kernels.offered(problem.op, operands, space="EXHAUSTIVE"))
        offered |= set(kernels.offered(problem.op, operands, space="DEFAULT"))
    space = exhaustive_space(problem, torch.__version__)
    assert len(space) == len(set(space))
    assert set(space) == offered
    libraries = sum(candidate.is_extern for candidate in offered)
    assert space_size(problem, torch.__version__) == SpaceSize(libraries, len(offered) - libraries)
