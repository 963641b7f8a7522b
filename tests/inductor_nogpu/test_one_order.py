"""With diode_batch_invariant all batches of a layer get kernels of one order of summation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.invariant import InvariantChooser
from diode_engine.choosing.stats import Profile, begin_profile, end_profile
from diode_engine.choosing.summation import Instruction, SummationOrder, order_of
from diode_engine.core.hardware import H200
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.without_gpu import lower
from diode_engine.registry import load_predictor
from tests.inductor_nogpu.conftest import MMA, WGMMA, FixedPredictor, empty, marked, program
from tests.inductor_nogpu.test_eight_bit import F8, whole
from tests.inductor_nogpu.test_grouped import experts

N, K, B = 768, 1024, 4
SIZES = (1, 16, 33, 256, 8192)
INVARIANT = {"diode_batch_invariant": True}
MODES: dict[str, dict[str, Any]] = {
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
    "default": {"mode": "default"},
}


@pytest.fixture
def tf32():
    with kernels.tf32(True):
        yield


def install() -> None:
    diode_engine.install_diode_choices(predictor=load_predictor(H200), top_k_configs=1)


# Of M rows.
LAYERS: dict[str, Callable[[int], tuple[Any, Sequence[torch.Tensor]]]] = {
    "mm": lambda m: (torch.mm, (empty(m, K), empty(N, K).t())),
    "addmm": lambda m: (torch.addmm, (empty(N), empty(m, K), empty(N, K).t())),
    "bmm": lambda m: (torch.bmm, (empty(B, m, K), empty(B, K, N))),
    "baddbmm": lambda m: (torch.baddbmm, (empty(B, m, N), empty(B, m, K), empty(B, K, N))),
    "residual": lambda m: (torch.addmm, (empty(m, N), empty(m, K), empty(N, K).t())),
    "split": lambda m: (torch.mm, (empty(m, 64 * 256), empty(64, 64 * 256).t())),
}


def choose(build: Any, **more: Any) -> Choice:
    with diode_engine.profile_predictions() as profile:
        lower(build, options=INVARIANT, **more)
    (choice,) = profile.selections
    return choice


def order(choice: Choice) -> SummationOrder | None:
    (candidate,) = choice.candidates
    return order_of(choice.problem, candidate, H200)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layer", LAYERS)
def test_all_batches_of_a_layer_get_kernels_of_one_order(layer, mode, proven):
    choices = [choose(lambda m=m: LAYERS[layer](m), **MODES[mode]) for m in SIZES]
    assert [choice.problem.M for choice in choices] == list(SIZES)
    assert {order(choice) for choice in choices} in ({WGMMA}, {MMA})
    assert len({choice.candidates for choice in choices}) > 1
    assert {str(choice.why) for choice in choices} == {
        "the fastest of those that add up in the order fixed for all batches"
    }
    assert all(choice.library_us for choice in choices)
    assert diode_engine.get_stats()["fallbacks"] == 0


@pytest.mark.skipif(
    not hasattr(config, "batch_invariant"), reason="this torch has no option batch_invariant"
)
def test_inductors_own_option_fixes_the_same_order(proven):
    for m in (1, 256):
        with diode_engine.profile_predictions() as profile:
            lower(lambda m=m: LAYERS["mm"](m), options={"batch_invariant": True})
        assert profile.selections[0].candidates == choose(lambda m=m: LAYERS["mm"](m)).candidates


def test_without_the_option_the_orders_differ_and_none_is_looked_for(proven, monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(InvariantChooser, "orders_for", fail)
    with diode_engine.profile_predictions() as profile:
        for m in SIZES:
            lower(lambda m=m: LAYERS["mm"](m))
    kept = {c.candidates[0].template for c in profile.selections}
    assert "aten::mm" in kept
    assert diode_engine.get_stats()["fallbacks"] == 0


def test_the_order_does_not_depend_on_what_was_compiled_before(proven):
    def chosen(sizes):
        install()  # a new chooser
        layers = {m: choose(lambda m=m: LAYERS["mm"](m)) for m in sizes}
        return {m: choice.candidates[0] for m, choice in layers.items()}

    assert chosen(SIZES) == chosen(SIZES[::-1])
    assert chosen(SIZES[2:3]).items() <= chosen(SIZES).items()


@pytest.mark.parametrize("only", [WGMMA, MMA], ids=str)
def test_an_order_that_is_not_proven_is_never_chosen(only, prove):
    prove([only])
    for m in SIZES:
        choice = choose(lambda m=m: LAYERS["mm"](m))
        assert order(choice) == only


def test_orders_with_the_same_bits_are_taken_together(prove):
    """A few rows get low tiles, many rows wgmma."""
    prove([WGMMA, MMA])
    choices = [choose(lambda m=m: LAYERS["mm"](m)) for m in SIZES]
    assert {order(choices[0]), order(choices[-1])} == {MMA, WGMMA}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("by_rows", [True, False])
def test_all_batches_of_a_layer_in_8_bits_get_kernels_of_one_order(fast, by_rows, prove):
    eight = SummationOrder(Instruction.WGMMA, "float8_e4m3fn", "float32", 32, 0 if fast else 128)
    prove([eight])

    def build(m):
        function = partial(torch._scaled_mm, out_dtype=torch.bfloat16, use_fast_accum=fast)
        sizes = ((m, 1), (1, N)) if by_rows else ((), ())
        scales = [empty(*size, dtype=torch.float32) for size in sizes]
        return function, [empty(m, K, dtype=F8), empty(N, K, dtype=F8).t(), *scales]

    choices = [choose(lambda m=m: build(m)) for m in SIZES]
    assert {order(choice) for choice in choices} == {eight}
    assert diode_engine.get_stats()["fallbacks"] == 0

    def build_dynamic():
        function, tensors = build(512)
        for tensor in (tensors[0], *(tensors[2:3] if by_rows else ())):
            marked(tensor, 0)
        return function, tensors

    for how in ({"build": lambda: build(512)}, {"build": build_dynamic, "dynamic": None}):
        kernels = program(**how, options=INVARIANT).split("tl.dot(a, b")[1:]
        assert kernels
        # the kernel adds up as its order says
        assert {kernel.startswith(", acc,") for kernel in kernels} == {fast}


def test_a_product_of_one_row_and_a_batch_of_one_stay_what_they_are(proven, prove):
    """Inductor would compute the sum of one row's products, and mm for a batch of one."""

    def wider(m):
        operands = empty(B, m, K), empty(B, K, N)
        return lambda a, b: torch.bmm(a, b, out_dtype=torch.float32), operands

    def full(batch):
        sizes = (batch, 256, 512), (batch, 512, 512)
        return torch.bmm, [empty(*size, dtype=torch.float32) for size in sizes]

    for fallback in (True, False):
        with config.patch(fallback_random=fallback):
            assert len({order(choose(lambda m=m: wider(m))) for m in (1, 256)}) == 1
            assert order(choose(lambda: LAYERS["mm"](1))) == order(choose(lambda: LAYERS["mm"](16)))
    by_block = [SummationOrder(Instruction.FMA, *["float32"] * 2, 1, block_k=k) for k in (32, 64)]
    prove(*([each] for each in by_block))
    assert len({order(choose(lambda b=b: full(b))) for b in (1, 2)}) == 1


@pytest.mark.skipif(torch.__version__ < (2, 11), reason="torch 2.10 cannot compile it")
@pytest.mark.parametrize("n", [N, 256])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_all_batches_of_a_layer_use_tf32_if_it_is_allowed(n, is_dynamic, tf32, prove):
    both = [replace(each, operands="tf32", k=8) for each in (WGMMA, MMA)]
    prove(both)
    for m in (300,) if is_dynamic else SIZES:

        def build(m=m):
            x = marked(empty(m, K, dtype=torch.float32), *([0] if is_dynamic else []))
            return torch.mm, (x, empty(n, K, dtype=torch.float32).t())

        with diode_engine.profile_predictions() as profile:
            (source,) = lower(build, options=INVARIANT).sources
        (choice,) = profile.selections
        kernels = [kernel for _, kernel in choice.by_rows] or choice.candidates
        assert {order_of(choice.problem, kernel, H200) for kernel in kernels} <= {*both}
        assert source.count("ALLOW_TF32 : tl.constexpr = True") == len(kernels)
        assert "ALLOW_TF32 : tl.constexpr = False" not in source
    assert diode_engine.get_stats()["fallbacks"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_products_of_groups_get_kernels_of_orders_with_the_same_bits(mode, prove):
    both = [replace(each, in_groups=True) for each in (WGMMA, MMA)]
    prove(both)
    choices = [choose(experts(tokens=m), **MODES[mode]) for m in (2, 300, 8192)]
    assert {order(choice) for choice in choices} == {*both}
    assert {choice.why for choice in choices} == {Why.INVARIANT}
    assert diode_engine.get_stats()["fallbacks"] == 0
    prove(both[:1], both[1:])
    # One of them alone has no kernels for all batches.
    assert "no order of summation" in refused(experts())


def test_a_product_of_groups_with_a_dynamic_number_of_rows_gets_one_kernel(prove):
    both = [replace(each, in_groups=True) for each in (WGMMA, MMA)]
    prove(both)

    def build():
        run, (rows, *others) = experts()()
        return run, (marked(rows, 0), *others)

    choice = choose(build)
    assert order(choice) in both
    assert choice.by_rows == ()


@dataclass
class Left(Profile):
    """Why products got the library's kernel."""

    whys: list[str] = field(default_factory=list)

    def take_left(self, why: str) -> None:
        self.whys.append(why)


def refused(build: Any, mode: str = "max-autotune-no-cudagraphs", **options: Any) -> str:
    """Why a product gets the library's kernel, of a program with one product."""
    install()
    profile = Left()
    begin_profile(profile)
    try:
        source = program(build, mode=mode, options={**INVARIANT, **options})
    finally:
        end_profile(profile)
    assert "tl.dot" not in source
    assert not profile.selections
    (why,) = profile.whys
    assert diode_engine.get_stats()["fallback_batch_invariant"] == 1
    return why


def test_a_product_of_no_proven_order_is_refused_with_a_sentence():
    for op in ("mm", "addmm"):
        why = refused(lambda op=op: LAYERS[op](16))
        expected = f"no order of summation with kernels for all batches of {op} in bfloat16 is"
        assert expected in why
        assert "proven on NVIDIA H200 with torch 2." in why


def test_what_the_option_does_not_cover_is_refused(proven, monkeypatch):
    for how in ({}, {"diode_fallback_to_autotune": True}):  # nothing is searched either
        why = refused(lambda: (torch.mm, (empty(16, K), empty(1, K).t())), **how)
        assert "of one column" in why
    of_any_depth = lambda: (torch.mm, (empty(300, K), marked(empty(K, 600), 1)))  # noqa: E731
    assert "N or K is dynamic" in refused(of_any_depth)
    for mode in MODES.values():
        why = refused(lambda: (torch.addmm, (empty(1), empty(16, K), empty(N, K).t())), **mode)
        assert "one element" in why
    monkeypatch.setattr(sys.modules[__name__], "load_predictor", lambda _: FixedPredictor())
    assert "does not cover grouped_mm_batch" in refused(experts("grouped_mm_batch"))
    assert "no order of summation" in refused(experts())  # proven for no product of groups
    assert "one row in all" in refused(experts(tokens=1))
    assert "does not cover int_mm" in refused(whole)


def wider(rows: int = 16) -> tuple[Any, Sequence[torch.Tensor]]:
    """A product for which Inductor has no template: its result is of a wider type."""
    return lambda a, b: torch.mm(a, b, out_dtype=torch.float32), (empty(rows, K), empty(K, N))


def blocks() -> tuple[Any, Sequence[torch.Tensor]]:
    """One with a scale for each block, for which Inductor has a template that loads through TMA."""
    of_a = empty(K // 128, 256, dtype=torch.float32).t()
    of_b = empty(N // 128, K // 128, dtype=torch.float32).t()
    given = empty(256, K, dtype=F8), empty(N, K, dtype=F8).t(), of_a, of_b
    return lambda *tensors: torch._scaled_mm(*tensors, out_dtype=torch.bfloat16), given


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("build", [wider, lambda: wider(1), blocks], ids=["16", "1", "blocks"])
def test_what_only_the_library_computes_is_refused(build, mode, prove):
    eight = SummationOrder(Instruction.WGMMA, "float8_e4m3fn", "float32", 32, 128)
    prove([WGMMA, MMA], [eight])
    refused(build, **MODES[mode])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "build", [lambda: LAYERS["mm"](16), lambda: LAYERS["addmm"](16), experts()]
)
def test_without_tritons_kernels_every_product_is_refused(build, mode, proven):
    refused(build, **MODES[mode], max_autotune_gemm_backends="ATEN")


def test_nothing_is_fused_behind_a_product(proven):
    def build():
        return lambda a, b: torch.relu(a @ b), (empty(256, K), empty(K, N))

    assert lower(build, options={"fast_autotune": True}).sources[0].count("def triton_") == 1
    source = lower(build, options=INVARIANT).sources[0]
    assert source.count("def triton_") == 2


def test_the_fingerprint_has_the_option_and_the_proven_orders(proven):
    before = read_fingerprint()
    with config.patch(INVARIANT):
        after = read_fingerprint()
    assert "diode_batch_invariant" in before.describe_differences(after)
    assert before.parts["orders"] == f"{MMA}; {WGMMA}"
