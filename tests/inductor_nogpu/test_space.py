"""The EXHAUSTIVE space and its size as validation and plans tell them, against what Inductor
offers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._inductor import config

from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering import kernels
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.sources import mixed
from diode_engine.problems.space_size import SpaceSize, space_size

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


@pytest.fixture(autouse=True)
def _what_does_not_fit_is_offered() -> Iterator[None]:
    """torch 2.10 leaves out by itself what needs more shared memory than the device has."""
    with config.patch(max_autotune_prune_choices_based_on_shared_mem=False):
        yield


@pytest.mark.parametrize("problem", CHOSEN + mixed(12, 5), ids=str)
def test_the_space_is_what_inductor_offers(problem: Problem) -> None:
    with kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        offered = set(kernels.offered(problem.op, operands, space="EXHAUSTIVE"))
        offered |= set(kernels.offered(problem.op, operands, space="DEFAULT"))
    space = exhaustive_space(problem, torch.__version__)
    assert len(space) == len(set(space))
    assert set(space) == offered
    libraries = sum(candidate.is_extern for candidate in offered)
    assert space_size(problem, torch.__version__) == SpaceSize(libraries, len(offered) - libraries)
