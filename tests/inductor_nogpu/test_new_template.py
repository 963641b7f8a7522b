"""A template that Inductor did not have is chosen once it is in the table of templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._inductor.kernel import mm
from torch._inductor.select_algorithm import TritonTemplate
from torch._inductor.template_heuristics import registry
from torch._inductor.template_heuristics import triton as heuristics

import diode_engine
from diode_engine.core.problem import Problem
from diode_engine.core.templates import TEMPLATES
from diode_engine.core.templates.template import TMA_OPTION
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import empty

NAME = "triton::mm_made_up"
UNLISTED = replace(TEMPLATES["triton::mm"].space, cut_from_list=False)
MADE_UP = replace(TEMPLATES["triton::mm"], name=NAME, label="made_up", ops=("mm",), space=UNLISTED)


class _ChangedHeuristic(heuristics.CUDAMMTemplateConfigHeuristic):
    """Another template's list, which is not cut as Triton's templates of mm have theirs cut."""

    def _filter_configs(self, configs: list[Any]) -> list[Any]:
        return [c for c in super()._filter_configs(configs) if c.block_m >= 128]


registry.register_template_heuristic(NAME, "cuda")(_ChangedHeuristic)
_IN_INDUCTOR = TritonTemplate(
    name="mm_made_up",
    grid=mm.mm_template.grid,
    source=mm.load_kernel_template("triton_mm"),
    prologue_loads_all_inputs=True,
)


@pytest.fixture(autouse=True)
def offered(monkeypatch):
    """Inductor offers it for mm in place of its own."""
    monkeypatch.setattr(mm, "mm_template", _IN_INDUCTOR)


def product() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return torch.mm, (empty(1024, 1024), empty(1024, 1024))


@pytest.mark.parametrize(("option", "remembered"), [("", 1), (TMA_OPTION, 0)])
def test_it_is_chosen_and_remembered_where_it_needs_no_option(
    option, remembered, predictor, monkeypatch
):
    monkeypatch.setitem(TEMPLATES, NAME, replace(MADE_UP, option=option))
    for _ in range(2):
        [seen] = lower(product).seen
        assert [c.template for c in seen.candidates] == [NAME]
    assert diode_engine.get_stats()["cache_hits"] == remembered


def test_it_is_offered_with_its_parameters_alone(monkeypatch):
    monkeypatch.setitem(TEMPLATES, NAME, MADE_UP)
    problem = Problem.make("mm", 1024, 1024, 1024, "bfloat16")
    with kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        found = [c for c in kernels.offered(problem.op, operands) if c.template == NAME]
    assert len(found) > 100
    assert all(set(c.config) == set(MADE_UP.parameters) for c in found)
