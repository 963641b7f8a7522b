"""The space that is ranked is the one that Inductor would list."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.template_heuristics import triton as heuristics
from torch._inductor.template_heuristics.registry import get_template_heuristic

import diode_engine
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.space import NotOffered, Spaces, space_of_choices
from diode_engine.inductor.without_gpu import lower
from diode_engine.problems.sources import mixed
from tests.inductor_nogpu.conftest import SPACES, tensors_of, whole_spaces

pytestmark = pytest.mark.skipif(
    torch.__version__ < "2.11", reason="what torch 2.10 offers is always listed, never cut"
)

SIMPLE = SPACES[0]


@pytest.fixture(autouse=True)
def _what_does_not_fit_is_offered():
    """torch 2.10 leaves out by itself what needs more shared memory than the device has."""
    with whole_spaces():
        yield


class Comparing:
    """Looks whether what is found is what Inductor lists."""

    def __init__(self):
        self.spaces = Spaces()
        self.found = 0
        self.listed = set()

    def __call__(self, template_choices, kernel_inputs, op_name):
        offers = {uid: list(choices) for uid, choices in template_choices.items()}
        sizes = kernel_inputs.mnk_hinted()
        asked = []

        def offered(uid):
            asked.append(uid)
            return offers[uid]

        found = self.spaces.find(op_name, kernel_inputs, tuple(offers), sizes, offered)
        self.listed |= set(asked)
        fresh = space_of_choices(choice for choices in offers.values() for choice in choices)
        assert tuple(found.candidates) == tuple(fresh.candidates)
        for place in {*range(0, len(found.candidates), 61), *range(len(found.candidates))[-1:]}:
            (uid, own), (name, made) = found.kernel(place), fresh.kernel(place)
            assert (uid, own.to_kwargs()) == (name, made.to_kwargs())
        self.found += len(found.candidates)


def _asked(choices, problem, *, tma=False):
    with kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        kernels.read_offers(choices, problem.op, operands, optional=tma)


@pytest.mark.parametrize("tma", [False, True], ids=["", "tma"])
@pytest.mark.parametrize("problem", SPACES + mixed(12, 3), ids=str)
def test_a_space_is_what_inductor_lists(problem, tma):
    choices = Comparing()
    _asked(choices, problem, tma=tma)
    assert choices.found > 2
    assert not any("triton" in uid for uid in choices.listed)


def test_it_follows_options_and_the_list_of_configs(monkeypatch):
    choices = Comparing()
    _asked(choices, SIMPLE)
    with config.patch({"test_configs.max_mm_configs": 7}):
        found = choices.found
        _asked(choices, SIMPLE)
        assert choices.found == found + 1 + 7
    heuristic = get_template_heuristic("triton::mm", "cuda", "mm")
    every = heuristic.exhaustive_configs
    monkeypatch.setattr(heuristic, "exhaustive_configs", every[40:45])
    found = choices.found
    _asked(choices, SIMPLE)
    assert found + 1 < choices.found <= found + 1 + 5
    spilling = [c for c in every if c.block_m * c.block_n == 256 * 256 and c.num_warps == 2]
    assert spilling
    monkeypatch.setattr(heuristic, "exhaustive_configs", spilling)
    found = choices.found
    _asked(choices, SIMPLE)
    assert choices.found == found + 1


def _leave_out_large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a torch to come may do."""
    kind = heuristics.BaseConfigHeuristic
    prune = kind._prune_reg_spill_configs
    monkeypatch.setattr(
        kind,
        "_prune_reg_spill_configs",
        lambda self, configs: [c for c in prune(self, configs) if c.block_n < 256],
    )


def test_a_space_that_differs_from_inductors_is_noticed(monkeypatch):
    _leave_out_large_tiles(monkeypatch)
    with pytest.raises(AssertionError):
        _asked(Comparing(), SIMPLE)
    refused = 0

    class Asking(Comparing):
        def __call__(self, template_choices, kernel_inputs, op_name):
            nonlocal refused
            found = self.spaces.find(
                op_name, kernel_inputs, tuple(template_choices), kernel_inputs.mnk_hinted(),
                template_choices.__getitem__,
            )  # fmt: skip
            for place, candidate in enumerate(found.candidates):
                if place % 37 == 0 and candidate.config.get("BLOCK_N") == 256:
                    with pytest.raises(NotOffered):
                        found.kernel(place)
                    refused += 1

    _asked(Asking(), SIMPLE)
    assert refused > 2


def test_then_the_choice_is_among_what_inductor_lists(predictor, monkeypatch):
    _leave_out_large_tiles(monkeypatch)  # of which the predictor's best is one

    [seen] = lower(lambda: (torch.mm, [torch.empty(512, 512, device="cuda") for _ in "ab"])).seen
    assert [c.template for c in seen.candidates] == ["aten::mm"]
    assert len(predictor.asked) == 2
    assert predictor.asked[1][1] < predictor.asked[0][1]
    assert diode_engine.get_stats()["fallbacks"] == 0


@pytest.mark.parametrize("op", [OPERATORS[name] for name in ("mm", "addmm", "bmm", "baddbmm")])
def test_a_choice_needs_no_list(predictor, monkeypatch, op):
    problem = Problem.make(op, 256, 512, 512, "float16", B=2 if op.batched else 1)
    made: list[Any] = []
    make = heuristics.MMTemplateConfigMixin._convert_config_to_template_kwargs

    def noted(self, *args):
        made.append(args)
        return make(self, *args)

    monkeypatch.setattr(
        heuristics.MMTemplateConfigMixin, "_convert_config_to_template_kwargs", noted
    )

    [seen] = lower(lambda: (getattr(torch, op), tensors_of(problem))).seen
    assert [c.template for c in seen.candidates] == ["triton::bmm" if op.batched else "triton::mm"]
    assert len(made) == 1
    assert sum(n for _, n in predictor.asked) > 700  # that fit
