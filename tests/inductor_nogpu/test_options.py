"""Diode's options in torch._inductor.config, and what they do to the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import config
from torch._inductor.fx_passes import pad_mm

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing.compile_options import CompileOptions
from diode_engine.inductor.hook import options
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import (
    ASKS_BEFORE_PADDING,
    FAST,
    Build,
    Rule,
    build_of,
    empty,
    gemm,
    install,
)


def left(lowered: Lowered) -> tuple[Candidate, ...]:
    return lowered.seen[0].candidates


def unsure(reaches: tuple[float, ...] = (0.4, 0.6, 0.8, 0.9), **more: Any) -> Rule:
    """Ranks by BLOCK_M, and says how sure it is."""
    return Rule(lambda _, c: 1.0 + float(c.config.get("BLOCK_M") or 500), reaches=reaches, **more)


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_every_option_can_be_set_as_inductors_own(option):
    other = {bool: not option.default, int: 2, float: 0.5, str: "a"}[type(option.default)]
    assert getattr(config, option.name) == option.default
    before = config.get_hash()
    with config.patch({option.name: other}):
        assert getattr(config, option.name) == other
        assert config.get_hash() != before  # it is in the caches' keys
    assert config.get_hash() == before
    torch.compile(lambda x: x, options={option.name: other})
    with pytest.raises(RuntimeError, match="Unexpected type"):
        torch.compile(lambda x: x, options={option.name: None})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("diode_top_k", "many", "it must be a whole number"),
        ("diode_confidence_threshold", "high", "it must be a number"),
        *(("diode_confidence_threshold", text, "from 0 to 1") for text in ("nan", "-1", "2")),
    ],
)
def test_an_impossible_value_in_the_environment_is_ignored(name, text, says, caplog):
    option = next(o for o in options.OPTIONS if o.name == name)
    assert options._from_environment(option, {option.variable: text}) == 0.0
    assert f"{option.variable}={text} is ignored" in caplog.text
    assert says in caplog.text


def test_top_k_is_what_the_option_says(predictor):
    predictor.aten = 1.05
    lowered = lower(gemm, options={"diode_top_k": 2}, benchmark=lambda _: 1.0)
    assert len(left(lowered)) == 2
    assert len(left(lower(gemm))) == 1  # as it was installed, and not from memory


def test_nothing_is_remembered_without_the_option(predictor):
    for _ in range(2):
        lower(gemm, options={"diode_cache_predictions": False})
    assert diode_engine.get_stats()["cache_hits"] == 0
    assert len(predictor.asked) == 2


def test_a_choice_that_is_sure_enough_is_not_benchmarked():
    install(unsure())
    assert len(left(lower(gemm))) == 1
    assert len(left(lower(gemm, options={"diode_confidence_threshold": 0.4}))) == 1


@pytest.mark.parametrize(
    ("reaches", "threshold", "kept"),
    [((0.4, 0.6, 0.8, 0.9), 0.7, 3), ((float("nan"),) * 10, 0.1, 10)],
)
def test_an_unsure_choice_is_benchmarked_among_as_many_as_it_takes_or_searched_if_asked_to(
    reaches, threshold, kept
):
    install(unsure(reaches))
    asked = {"diode_confidence_threshold": threshold}
    # and the library's, which Inductor may need
    assert len(left(lower(gemm, options=asked, benchmark=lambda _: 1.0))) == kept + 1
    asked["diode_fallback_to_autotune"] = True
    assert len(left(lower(gemm, options=asked, benchmark=lambda _: 1.0))) > 15
    assert diode_engine.get_stats()["fallback_low_confidence"] == 1


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("by_inductor", [True, False])
def test_nothing_is_benchmarked_where_results_must_be_the_same_each_time(by_inductor, fallback):
    install(unsure(), top_k_configs=3)
    options = {
        "diode_confidence_threshold": 0.7, "diode_fallback_to_autotune": fallback,
        "deterministic": by_inductor,
    }  # fmt: skip
    torch.use_deterministic_algorithms(not by_inductor)
    try:
        (program,) = lower(gemm, options=options).sources
    finally:
        torch.use_deterministic_algorithms(False)
    assert ("extern_kernels.mm(" in program) == fallback
    assert ("triton_heuristics.template" in program) != fallback


def test_a_model_of_other_hardware_is_less_sure(caplog):
    h100 = Hardware.from_dict({**H200.to_dict(), "name": "NVIDIA H100", "memory_gb_s": 3352})
    install(unsure(hardware=h100))
    assert "no model for NVIDIA H200; the model of NVIDIA H100 chooses" in caplog.text
    assert diode_engine.get_stats()["trained_on"] == "NVIDIA H100"
    with diode_engine.profile_predictions() as profile:
        lower(gemm)
    likeness = H200.likeness(h100)
    assert 0.5 < likeness < 1
    assert profile.selections[0].confidence == pytest.approx(0.4 * likeness)
    # 0.3 of what was measured there is more than 0.4 · likeness gives
    asked = {"diode_confidence_threshold": 0.3}
    assert len(left(lower(gemm, options=asked, benchmark=lambda _: 1.0))) == 2 + 1


@pytest.mark.parametrize("backends", ["DIODE", "diode,aten", "ATEN,TRITON,DIODE"])
def test_diode_as_a_backend(backends, predictor):
    for aten, template in ((5.0, "triton::mm"), (0.5, "aten::mm")):
        predictor.aten = aten
        lowered = lower(
            gemm, options={"max_autotune_gemm_backends": backends, "diode_cache_predictions": False}
        )
        assert [c.template for c in left(lowered)] == [template]


def test_diode_as_a_backend_is_stock_autotuning_where_it_is_inactive():
    stock = left(lower(gemm, benchmark=lambda _: 1.0))
    asked = {"max_autotune_gemm_backends": "DIODE"}
    assert left(lower(gemm, options=asked, benchmark=lambda _: 1.0)) == stock


def test_fast_autotune_leaves_everything_else_to_the_default_mode(predictor):
    def others():
        def f(a, b, i, j):
            return torch.sin(a) @ b + a @ torch.cos(b), torch._int_mm(i, j)

        ints = empty(64, 64, dtype=torch.int8), empty(64, 64, dtype=torch.int8)
        return f, (empty(256, 256), empty(256, 256), *ints)

    lowered = lower(others, **FAST)  # raises where it would benchmark
    assert "_int_mm" in lowered.sources[0]
    assert diode_engine.get_stats()["fallbacks"] == 0


def test_fast_autotune_autotunes_what_it_cannot_choose_where_asked_to(predictor):
    predictor.predict_us = lambda problem, candidates: np.full(len(candidates), np.nan)
    asked = {**FAST["options"], "diode_fallback_to_autotune": True}
    assert len(left(lower(gemm, mode="default", options=asked, benchmark=lambda _: 1.0))) > 10


def test_fast_autotune_without_diode_is_the_default_mode():
    assert "extern_kernels.mm" in lower(gemm, **FAST).sources[0]


def times_of_padding(
    library: tuple[float, float], triton: tuple[float, float] | None = None, **sure: Any
) -> Rule:
    """By the times of the library's and of Triton's kernels (the same ones if None), as the product
    is and padded."""

    def us(problem: Problem, candidate: Candidate) -> float:
        padded = problem.K % 4 == problem.N % 4 == 0
        return (library if candidate.is_extern else triton or library)[padded]

    return Rule(us, **sure)


def pads(predictor: Rule, build: Build, monkeypatch: pytest.MonkeyPatch, **how: Any) -> bool:
    """Whether the one product of the program is padded."""
    answers: list[bool] = []
    should_pad = pad_mm.should_pad

    def note(*args: Any) -> bool:
        answers.append(should_pad(*args))
        return False  # a torch without CUDA cannot trace the padded product

    monkeypatch.setattr(pad_mm, "should_pad", note)
    install(predictor)
    lower(build, **{"options": {"shape_padding": True}, **how})
    return answers[0]


float32_gemm = build_of(torch.mm, (2048, 2049), (2049, 2048), dtype=torch.float32)
float32_linear = build_of(
    torch.nn.functional.linear, (2048, 2048), (2049, 2048), dtype=torch.float32
)


@ASKS_BEFORE_PADDING
@pytest.mark.parametrize(
    ("library", "triton", "tf32", "expected"),
    [
        ((1000.0, 333.0), (1000.0, 333.0), False, True),
        ((1000.0, 960.0), (1000.0, 960.0), False, False),
        ((1000.0, 1000.0), (2000.0, 890.0), False, False),  # not worth its risk, no reason to pad
        ((1000.0, 1000.0), (2000.0, 800.0), False, True),
        ((1000.0, 990.0), (2000.0, 860.0), False, False),  # worth it if padded, not by MARGIN here
        ((1000.0, 900.0), (2000.0, 2000.0), True, True),  # both are the library's
        ((1000.0, 940.0), (2000.0, 2000.0), True, False),
        ((1000.0, 900.0), (2000.0, 2000.0), False, False),  # without tensor cores
        ((1000.0, 800.0), (2000.0, 2000.0), False, True),
    ],
)
def test_padding_is_decided_by_what_would_be_taken(library, triton, tf32, expected, monkeypatch):
    predictor = times_of_padding(library, triton)
    with kernels.tf32(tf32):
        assert pads(predictor, float32_gemm, monkeypatch) == expected
    assert diode_engine.get_stats()["padding_decided"] == 1


@ASKS_BEFORE_PADDING
@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("threshold", [0.3, 0.5])
def test_padding_of_which_the_model_is_unsure_is_timed_where_the_threshold_asks_for_it(
    mode, deterministic, threshold, monkeypatch
):
    monkeypatch.setattr(pad_mm, "_should_pad", lambda *_: False)  # what the timing says
    predictor = times_of_padding((1000.0, 333.0), reaches=(0.4,))
    options = {
        **FAST["options"], "shape_padding": True, "diode_confidence_threshold": threshold,
        "deterministic": deterministic,
    }  # fmt: skip
    timed = threshold > 0.4 and not deterministic
    found = pads(
        predictor, float32_gemm, monkeypatch, mode=mode, options=options, benchmark=lambda _: 1.0
    )
    assert found != timed
    assert diode_engine.get_stats()["padding_decided"] == (not timed)


@ASKS_BEFORE_PADDING
@pytest.mark.parametrize(("padded", "expected"), [(800.0, True), (980.0, False)])
def test_a_padded_operand_keeps_its_order_and_gets_the_librarys_kernel(
    padded, expected, monkeypatch
):
    """The product with a Linear's weight: what pads the weight writes it column by column, and a
    template does not read what has moved since it was chosen."""
    predictor = times_of_padding((1000.0, padded), (2000.0, 500.0))
    assert pads(predictor, float32_linear, monkeypatch) == expected
    assert {p.b.layout for p in predictor.asked} == {"col"}


@pytest.mark.parametrize(
    ("mode", "options"),
    [("default", {}), ("max-autotune-no-cudagraphs", {"test_configs.max_mm_configs": 4})],
    ids=["the default mode", "an altered search"],
)
def test_padding_is_left_to_inductor(mode, options, predictor, monkeypatch):
    benchmarked: list[Any] = []
    monkeypatch.setattr(pad_mm, "is_mm_compute_bound", lambda *sizes: benchmarked.append(sizes))
    options = {"shape_padding": True, **options}
    odd_gemm = build_of(torch.mm, (4095, 4095), (4095, 4095))
    lower(odd_gemm, mode=mode, options=options, benchmark=lambda _: 1.0)
    assert len(benchmarked) == 1
    assert predictor.asked == []
    assert diode_engine.get_stats()["padding_decided"] == 0


def test_values_beyond_an_options_bounds_count_as_the_nearest():
    with config.patch(diode_top_k=-3, diode_confidence_threshold=7.0):
        now = CompileOptions.current()
    assert (now.top_k, now.confidence) == (0, 1.0)
