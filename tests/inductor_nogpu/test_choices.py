"""Which kernels end up in the program that Inductor generates."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch._inductor import config, select_algorithm
from torch._inductor.select_algorithm import (
    AlgorithmSelectorCache,
    add_preprocessing_fn,
    clear_preprocessing_fns,
    get_algorithm_selector_cache,
)
from torch._inductor.utils import get_k_splits

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.inductor.choosing.chosen_kernels import final_choice
from diode_engine.inductor.choosing.product import Request
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import (
    BEST,
    FAST,
    OPS,
    SPEECHLESS,
    FixedPredictor,
    Rule,
    build_of,
    called_first,
    empty,
    install,
    is_tile,
    program,
    sure,
)


def renders_best(source: str) -> bool:
    """Whether the kernel of the fixed predictor's best config is in the program."""
    wanted = ("BLOCK_M : tl.constexpr = 128", "BLOCK_N : tl.constexpr = 256",
              "BLOCK_K : tl.constexpr = 64", "num_stages=3", "num_warps=8")  # fmt: skip
    return all(text in source for text in wanted)


def add_a_foreign_kernel(choices: list[Any]) -> list[Any]:
    """As another backend does: a kernel of which Diode knows nothing."""
    foreign = copy.copy(choices[0])
    foreign.annotations = {"ktc": choices[0].annotations["ktc"]}
    return [*choices, foreign]


def only_seen(lowered: Lowered) -> tuple[Candidate, ...]:
    (seen,) = lowered.seen
    return seen.candidates


@pytest.mark.parametrize("op", OPS)
def test_the_predicted_best_kernel_is_generated(op, predictor):
    for repeated in (False, True):  # the second time it is remembered
        lowered = lower(OPS[op])
        (source,) = lowered.sources
        assert renders_best(source)
        assert source.count("@triton_heuristics.template") == 1  # no loser was rendered
        assert len(only_seen(lowered)) == 1
        assert lowered.seen[0].predicted_us == (1.0,)
        assert (diode_engine.get_stats()["cache_hits"] > 0) == repeated
    stats = diode_engine.get_stats()
    assert stats["model_selections"] == 2
    assert stats["fallbacks"] == 0
    assert stats["configs_considered"] > 1000  # the EXHAUSTIVE space
    assert stats["seconds"] > 0
    assert config.max_autotune_gemm_search_space == "DEFAULT"  # is put back


@pytest.mark.parametrize(("aten", "taken"), [(0.5, True), (1.14, True), (1.16, False)])
@pytest.mark.parametrize("op", OPS)
def test_a_librarys_kernel_goes_before_one_that_is_hardly_faster(op, aten, taken, predictor):
    predictor.aten = aten
    (source,) = lower(OPS[op]).sources
    assert bool(re.search(r"extern_kernels\.\w+\(", source)) == taken
    assert ("triton_heuristics.template" in source) != taken
    assert renders_best(source) != taken


@pytest.mark.parametrize(
    ("evidence", "aten", "library"),
    [
        ({}, 1.04, True), ({}, 1.06, False),
        ({"error": 0.2}, 1.15, True), ({"error": 0.2}, 1.17, False),
        ({"proven": False}, 2.0, True), ({"proven": True}, 2.0, False),
    ],
)  # fmt: skip
def test_what_timings_say_of_gains_and_kinds_of_kernels_counts(evidence, aten, library):
    install(sure(aten=aten, **evidence))
    for _ in range(2):  # the second time it is remembered
        assert only_seen(lower(OPS["mm"]))[0].is_extern == library
    assert diode_engine.get_stats()["cache_hits"] > 0


@pytest.mark.parametrize(("likeness", "library"), [(1.0, False), (0.9, False), (0.5, True)])
def test_a_model_of_another_gpu_is_trusted_less(likeness, library, monkeypatch):
    monkeypatch.setattr(Hardware, "likeness", lambda self, other: likeness)
    borrowed = sure(aten=1.08)
    borrowed.hardware = replace(H200, name="NVIDIA Another")
    install(borrowed)
    assert only_seen(lower(OPS["mm"]))[0].is_extern == library


@pytest.mark.parametrize("aten", [1.05, 50.0, np.nan])
@pytest.mark.parametrize("op", OPS)
def test_several_kernels_have_a_librarys_among_them(op, aten):
    tiles = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}  # of many stages and warps
    install(FixedPredictor(best=tiles, aten=aten), top_k_configs=3)
    kept = only_seen(lower(OPS[op], benchmark=lambda _: 1.0))
    # From torch 2.13 on addmm asks for the library's kernels first, and then for Triton's.
    unknown = op == "addmm" and np.isnan(aten)
    assert [c.is_extern for c in kept].count(False) == 3 or unknown
    assert any(c.is_extern for c in kept)


def test_another_backends_kernel_is_offered_a_librarys_beside_it(predictor):
    with_others = {"max_autotune_gemm_backends": "ATEN,TRITON,CUTLASS"}
    (candidate,) = only_seen(lower(OPS["mm"], options=with_others))
    assert is_tile(candidate, BEST)  # none was added: one is left
    with called_first(add_a_foreign_kernel):
        kept = only_seen(lower(OPS["mm"], options=with_others, benchmark=lambda _: 1.0))
    assert any(c.is_extern for c in kept)
    assert diode_engine.get_stats()["fallback_foreign_choice"] == 1


@pytest.mark.parametrize(("aten", "taken"), [(1.14, "aten::mm"), (1.16, "decompose_k")])
def test_decompose_k_is_no_librarys_kernel(aten, taken):
    us = {"decompose_k": 1.0, "aten::mm": aten}
    predictor = Rule(lambda _, candidate: us.get(candidate.template, 9.0))
    install(predictor)
    lowered = lower(build_of(torch.mm, (32, 8192), (8192, 32)))
    assert lowered.seen[0].candidates[0].template == taken


def test_a_remembered_choice_makes_the_same_program(predictor):
    def biased(c, a, b):
        return torch.relu(torch.addmm(c, a, b, alpha=2, beta=3))

    build = build_of(biased, (250,), (500, 1000), (1000, 250))  # K % BLOCK_K != 0
    first, second = program(build), program(build)
    assert diode_engine.get_stats()["cache_hits"] > 0
    assert first == second
    assert "EVEN_K : tl.constexpr = False" in first


def test_a_size_without_a_hint_gets_the_library_s_kernel(predictor):
    def build():
        def of_some_rows(rows, b):
            return empty(rows.item(), 1024) @ b

        return of_some_rows, (torch.empty((), dtype=torch.int64), empty(1024, 768))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        lowered = lower(build)
    assert [c.template for c in only_seen(lowered)] == ["aten::mm"]
    assert predictor.asked == []
    assert diode_engine.get_stats()["fallback_no_hint"] == 1


def test_what_cannot_fit_is_never_chosen():
    huge = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 256, "num_stages": 5}
    install(FixedPredictor(best=huge))
    lowered = lower(build_of(torch.mm, *[(2048, 2048)] * 2, dtype=torch.float32))
    assert lowered.seen[0].predicted_us != (1.0,)
    assert diode_engine.get_stats()["configs_filtered"] > 0


@pytest.mark.parametrize("op", OPS)
def test_top_k_leaves_only_k_to_benchmark(op):
    benchmarked: list[Candidate] = []

    def benchmark(candidate):
        benchmarked.append(candidate)
        return 1.0 if candidate.config.get("num_warps") == 4 else 2.0

    tiles = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 3}
    predictor = FixedPredictor(best=tiles, aten=1.05)  # 1 µs for two warp counts
    install(predictor, top_k_configs=3)
    (source,) = lower(OPS[op], benchmark=benchmark).sources
    assert len(benchmarked) == 3
    assert {c.config.get("num_warps") for c in benchmarked} == {None, 4, 8}
    assert "num_warps=4" in source


@pytest.mark.parametrize(
    ("aten", "threshold", "libraries"),
    [(1.14, 1.0, [True]), (1.2, 1.0, [False]), (1.2, 1.1, [False]), (1.2, 1.3, [False, True])],
)
def test_the_threshold_leaves_out_what_is_predicted_slow(aten, threshold, libraries):
    """One kernel within the threshold has to be worth its risk."""
    install(FixedPredictor(aten=aten), top_k_configs=5, performance_threshold=threshold)
    kept = only_seen(lower(OPS["mm"], benchmark=lambda _: 1.0))
    assert [c.is_extern for c in kept] == libraries


def stock(op: str, **options: Any) -> tuple[Candidate, ...]:
    diode_engine.uninstall_diode_choices()
    return only_seen(lower(OPS[op], options=options, benchmark=lambda _: 1.0))


chain = build_of(lambda x, w: x @ w @ w @ w, (512, 512), (512, 512))


def test_a_product_that_a_graph_repeats_is_chosen_once(predictor, monkeypatch):
    asked, choose = [], ProductChooser.choose

    def counted(self, *args, **kwargs):
        asked.append(args)
        return choose(self, *args, **kwargs)

    monkeypatch.setattr(ProductChooser, "choose", counted)
    lowered = lower(chain)
    assert len(asked) == 1  # the others are rebuilt before anything else is looked up
    (source,) = lowered.sources
    assert renders_best(source)
    assert "extern_kernels.mm" not in source
    assert [seen.predicted_us for seen in lowered.seen] == [(1.0,)] * 3
    stats = diode_engine.get_stats()
    assert (stats["total_calls"], stats["cache_hits"]) == (3, 2)


@pytest.mark.parametrize("how", [FAST, {}], ids=["fast", "searched"])
def test_what_is_left_to_the_default_mode_is_not_chosen_from_memory(how):
    two = lambda b, x, w: torch.addmm(b, torch.addmm(b, x, w), w)  # noqa: E731
    build = build_of(two, (512,), (512, 512), (512, 512))
    install(Rule(lambda _, candidate: 5.0 if candidate.is_extern else np.nan))
    lower(build, **how)
    stats = diode_engine.get_stats()
    left = stats["fallback_no_prediction"]  # addmm asks three times from torch 2.13 on
    assert stats["model_selections"] == 2 - left


def test_what_is_remembered_is_of_one_device():
    def key(index):
        device, size = torch.device("cuda", index), [64, 64]
        layout = SimpleNamespace(dtype=torch.float16, size=size, stride=[64, 1])
        node = SimpleNamespace(get_device=lambda: device, get_layout=lambda: layout)
        inputs = SimpleNamespace(nodes=lambda: [node, node], out_dtype=lambda: torch.float16)
        return Request("mm", inputs, None, {"triton::mm": []}).key(fusion=False)

    assert key(0) == key(0) != key(1)


def test_a_fault_in_what_is_remembered_leaves_the_rest_to_the_library(predictor, monkeypatch):
    asked, key = [], Request.key

    def failing(self, *, fusion):
        asked.append(self)
        if len(asked) > 1:
            raise RuntimeError("Inductor has changed")
        return key(self, fusion=fusion)

    monkeypatch.setattr(Request, "key", failing)
    lowered = lower(chain)
    templates = [[c.template for c in seen.candidates] for seen in lowered.seen]
    assert templates == [["triton::mm"], ["aten::mm"], ["aten::mm"]]
    assert diode_engine.get_stats()["fallback_error"] == 2


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_without_a_prediction_the_library_s_kernel_is_taken_or_inductor_searches(op, searched):
    expected = stock(op) if searched else stock(op, max_autotune_gemm_backends="ATEN")
    assert (len(expected) > 10) == searched
    diode_engine.install_diode_choices(predictor=SPEECHLESS)
    times = {"benchmark": lambda _: 1.0} if searched else {}
    lowered = lower(OPS[op], options={"diode_fallback_to_autotune": searched}, **times)
    assert only_seen(lowered) == expected
    # An addmm that is searched asks three times from torch 2.13 on.
    stats = diode_engine.get_stats()
    assert stats["fallback_no_prediction"] == stats["fallbacks"] > 0
    assert searched or stats["fallbacks"] == 1


@pytest.mark.parametrize("backends", ["TRITON", "ATEN,TRITON,NO_SUCH_BACKEND"])
def test_the_backends_that_a_program_names_are_searched(backends):
    """Without a library's kernel, or with kernels that nothing predicts."""
    named = {"max_autotune_gemm_backends": backends}
    expected = stock("mm", **named)
    assert len(expected) > 10
    diode_engine.install_diode_choices(predictor=SPEECHLESS)
    assert only_seen(lower(OPS["mm"], options=named, benchmark=lambda _: 1.0)) == expected


def test_a_bias_of_one_element_is_read_as_in_plain_torch_compile():
    """max-autotune offers the library's call with the expanded bias only."""
    install(FixedPredictor(aten=5.0))
    product = lambda: (torch.addmm, (empty(1), empty(512, 128), empty(1, 128).t()))  # noqa: E731
    (source,) = lower(product).sources
    assert "extern_kernels.addmm(arg0_1, arg1_1, arg2_1" in source
    assert diode_engine.get_stats()["model_selections"] == 0


@pytest.mark.parametrize("how", [{}, FAST], ids=["max-autotune", "fast_autotune"])
def test_a_problem_unknown_to_diode_gets_the_library_s_kernel(how, predictor):
    integers = build_of(torch.mm, (64, 64), (64, 64), dtype=torch.int64)
    (source,) = lower(integers, **how).sources
    assert "extern_kernels.mm" in source
    assert predictor.asked == []
    assert diode_engine.get_stats()["fallback_unsupported"] == 1


@contextlib.contextmanager
def listened() -> Iterator[None]:
    savers = get_algorithm_selector_cache().feedback_saver_fns
    savers.append(lambda *_: None)
    try:
        yield
    finally:
        savers.pop()


LOOKUP = AlgorithmSelectorCache.lookup
ALTERED: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "a filter": lambda: config.patch({"test_configs.autotune_choice_name_regex": "triton_mm"}),
    "a filter of descriptions": lambda: config.patch(
        {"test_configs.autotune_choice_desc_regex": "BLOCK"}
    ),
    "a library's kernel": lambda: config.patch(
        {"test_configs.force_extern_kernel_in_multi_template": True}
    ),
    "other times": lambda: config.patch({"test_configs.distort_benchmarking_result": "inverse"}),
    "fewer configs": lambda: config.patch({"test_configs.max_mm_configs": 4}),
    "results checked": lambda: mock.patch.object(select_algorithm, "VERIFY", {"atol": 1e-4}),
    "a listener": listened,
    "a lookup of somebody's": lambda: mock.patch.object(
        AlgorithmSelectorCache, "lookup", return_value={}
    ),
    "a wrapper of Inductor's function": lambda: mock.patch.object(
        AlgorithmSelectorCache,
        "lookup",
        functools.wraps(LOOKUP)(lambda *args, **kwargs: LOOKUP(*args, **kwargs)),
    ),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_search_that_somebody_narrowed_replaced_or_watches_is_left_to_it(how, predictor):
    lower(OPS["mm"])  # is remembered, which must not count
    predictor.asked.clear()
    with ALTERED[how]():
        lowered = lower(OPS["mm"], benchmark=lambda _: 1.0)
    assert lowered.seen[0].predicted_us[0] is None
    assert predictor.asked == []
    assert diode_engine.get_stats()["fallback_altered_search"] == 1
    assert renders_best(lower(OPS["mm"]).sources[0])


def test_persistent_tma_is_considered_where_it_is_offered():
    us = {"triton::mm": 1.0, "triton::mm_persistent_tma": 0.5}
    predictor = Rule(lambda _, candidate: us.get(candidate.template, 5.0))
    install(predictor)
    assert only_seen(lower(OPS["mm"]))[0].template == "triton::mm"
    install(predictor)
    for _ in range(2):
        with_tma = lower(OPS["mm"], options={"triton.enable_persistent_tma_matmul": True})
        assert only_seen(with_tma)[0].template == "triton::mm_persistent_tma"
    # it depends on more options than this one, so it is not made from memory
    assert diode_engine.get_stats()["cache_hits"] == 0


def test_decompose_k_is_a_candidate_like_any_other():
    split = Rule(lambda _, candidate: 0.1 if candidate.config.get("k_split") == 16 else 5.0)
    install(split)
    for _ in range(2):
        lowered = lower(build_of(torch.mm, (32, 8192), (8192, 32)))
        chosen, inner = lowered.seen  # the batched product inside is lowered too
        assert chosen.candidates == (Candidate.make("decompose_k", k_split=16),)
        assert inner.predicted_us == (None,)


def test_what_is_left_to_inductor_is_split_as_without_diode():
    build = build_of(torch.mm, (32, 20160), (20160, 96))

    def splits():
        asked = {"diode_fallback_to_autotune": True}
        seen = lower(build, options=asked, benchmark=lambda _: 1.0).seen[0].candidates
        return [c for c in seen if c.template == "decompose_k"]

    stock = splits()
    get_k_splits.cache_clear()  # Inductor's memory of it is for a space
    install(SPEECHLESS)
    assert splits() == stock
    assert diode_engine.get_stats()["fallback_no_prediction"] == 1


def test_others_may_clear_the_preprocessing_functions(predictor):
    lower(OPS["addmm"])
    clear_preprocessing_fns()
    assert len(only_seen(lower(OPS["addmm"]))) == 1


def test_only_diodes_preprocessing_function_is_taken_away(predictor):
    def theirs(choices):
        return choices

    lower(OPS["addmm"])
    functions = get_algorithm_selector_cache().preprocessing_fns
    before = [function for function in functions if function is not final_choice]
    add_preprocessing_fn(theirs)
    try:
        diode_engine.uninstall_diode_choices()
        assert functions == [*before, theirs]
    finally:
        functions.remove(theirs)
