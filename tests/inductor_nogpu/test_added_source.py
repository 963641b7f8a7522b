"""A source of candidates besides Inductor's templates and the library's call. The first part of
this module is what a source adds; the fixture `offered` has its two lines in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor.select_algorithm import extern_kernels

import diode_engine
from diode_engine import features
from diode_engine.choosing.choice import Why
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.templates import TEMPLATES
from diode_engine.core.templates.template import SPLIT_PARAMETERS, Configs, Space, Template
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.sources import SOURCES
from diode_engine.inductor.lowering.sources.source import CandidateSource
from diode_engine.inductor.without_gpu import lower
from diode_engine.problems.spaces import default_space, exhaustive_space
from tests.inductor_nogpu.conftest import OPS, Rule, install
from tests.inductor_nogpu.test_one_order import INVARIANT, LAYERS

# ---- the source: products whose K is split, in one call


def _splits(m: int, n: int, k: int, torch: Any = None) -> Configs:
    return ((2,), (4,)) if torch is None else ((2,),)


TEMPLATE = Template(
    name="own::split_mm",
    ops=("mm",),
    own=True,
    parameters=SPLIT_PARAMETERS,
    required=tuple(SPLIT_PARAMETERS),
    space=Space(default_configs=_splits, exhaustive_configs=_splits),
)


class SplitSource(CandidateSource):
    uid = TEMPLATE.name
    fallback = staticmethod(torch.mm)

    def load(self, *, k_split: int) -> Callable[..., Any]:
        if k_split == 4:
            raise OSError("this library does not know 4 parts.")
        return _add_halves


def _add_halves(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    (a0, a1), (b0, b1) = a.chunk(2, 1), b.chunk(2, 0)
    return torch.add(a0 @ b0, a1 @ b1, out=out)


SPLIT = SplitSource()


@pytest.fixture(autouse=True)
def offered(monkeypatch):
    monkeypatch.setitem(TEMPLATES, TEMPLATE.name, TEMPLATE)
    monkeypatch.setitem(SOURCES, TEMPLATE.name, SPLIT)


# ---- what works with nothing else changed

PROBLEM = Problem.make("mm", 512, 768, 1024, "bfloat16")
HALVES, QUARTERS = (Candidate.make(TEMPLATE.name, k_split=split) for split in (2, 4))


@pytest.fixture
def asked():
    """The candidates that are predicted, by a predictor for which two halves are the fastest."""
    found: list[Candidate] = []

    def us(_, candidate):
        found.append(candidate)
        return 1.0 if candidate == HALVES else 5.0

    install(Rule(us))
    return found


@pytest.mark.usefixtures("asked")
def test_it_is_described_chosen_and_called():
    with diode_engine.profile_predictions() as profile:
        for _ in range(2):  # the second time from memory
            lowered = lower(OPS["mm"])
            assert [seen.candidates for seen in lowered.seen] == [(HALVES,)]
            [call] = [line for line in lowered.sources[0].splitlines() if "own_split" in line]
            assert call.strip() == (
                "extern_kernels.own_split_mm(arg0_1, arg1_1, k_split=2, out=buf0)"
            )
    first, again = profile.selections
    assert (first.why, first.remembered, again.remembered) == (Why.FASTEST, False, True)
    x = features.matrix((PROBLEM,), (HALVES, QUARTERS), np.zeros(2, np.intp), np.arange(2), H200)
    assert x[:, features.NAMES.index("log2_k_split")].tolist() == [1, 2]


def test_the_collector_gets_it_in_both_spaces_and_runs_it():
    a, b, out = torch.randn(512, 1024), torch.randn(1024, 768), torch.empty(512, 768)
    with kernels.graph_for(PROBLEM, torch.device("cuda:0")) as operands:
        for space, whole in (("DEFAULT", default_space), ("EXHAUSTIVE", exhaustive_space)):
            found = kernels.offered(PROBLEM.op, operands, space=space, optional=False)
            own = [c for c in found if c.template == TEMPLATE.name]
            assert own == [c for c in whole(PROBLEM) if c.template == TEMPLATE.name]
        kernels.launchable(found[HALVES], [a, b], out)()
        call = kernels.library_call(found[HALVES])
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-3)
    assert call is not None
    call(a, b, out=out.zero_())
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-3)


def test_the_library_s_call_runs_where_a_kernel_cannot_be_loaded(caplog):
    a, b, out = torch.randn(8, 16), torch.randn(16, 4), torch.empty(8, 4)
    for _ in range(2):
        extern_kernels.own_split_mm(a, b, k_split=4, out=out.zero_())
        assert torch.equal(out, torch.mm(a, b))
    assert caplog.text.count("this library does not know 4 parts") == 1  # it was loaded once


@pytest.mark.parametrize(
    ("op", "dynamic", "options"),
    [
        ("mm", None, {"max_autotune_gemm_backends": "TRITON"}),  # there is no library's call
        ("mm", None, {"cpp_wrapper": True}),
        ("mm", True, {}),
        ("bmm", None, {}),
    ],
)
def test_it_is_not_offered(asked, op, dynamic, options):
    assert lower(OPS[op], dynamic=dynamic, options=options).seen
    assert asked
    assert HALVES not in asked


def test_an_op_that_asks_several_times_is_offered_it_once(asked, monkeypatch):
    monkeypatch.setitem(TEMPLATES, TEMPLATE.name, replace(TEMPLATE, ops=("addmm",)))
    lower(OPS["addmm"])
    assert asked.count(HALVES) == 1


@pytest.mark.usefixtures("proven")
def test_where_one_order_of_summation_is_to_be_used_it_is_passed_over(monkeypatch):
    triton = TEMPLATES["triton::mm"]
    space = replace(triton.space, cut_from_list=False)
    tiled = replace(triton, name=TEMPLATE.name, own=True, space=space, ops=("mm",))
    monkeypatch.setitem(TEMPLATES, TEMPLATE.name, tiled)
    [seen] = lower(lambda: LAYERS["mm"](256), options=INVARIANT).seen
    assert [each.template for each in seen.candidates] == ["triton::mm"]
