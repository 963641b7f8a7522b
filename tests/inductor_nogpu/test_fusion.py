"""The choice on the fused cost: what Inductor will fuse, and what that saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.choosing.policy import MARGIN
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.inductor.fusion.epilogue import LAUNCH_US, Epilogue
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import Rule, build_of, empty, install

M, N, K = 1024, 512, 256
# A Triton kernel takes 101 µs. It is taken where the library's, and what it costs not to
# fuse, comes to so much.
LIMIT = 101.0 * MARGIN
CLOSE = LIMIT - 0.5
F = torch.nn.functional
Net = Callable[..., Any]


def install_aten(us: float) -> None:
    """ATen takes so many microseconds, each Triton kernel 101."""
    install(Rule(lambda _, c: us if c.is_extern else 101.0))


def lowered(net: Net, *more: tuple[int, ...], aten: float = CLOSE, **options: Any) -> Lowered:
    install_aten(aten)
    return lower(build_of(net, (M, K), (K, N), *more), options=options)


def takes_triton(done: Lowered) -> bool:
    """Whether the first product became a template."""
    return done.seen[0].candidates[0].template.startswith("triton::")


FUSED: dict[str, tuple[Net, tuple[tuple[int, ...], ...]]] = {
    "relu, returned": (lambda a, b: torch.relu(a @ b), ()),
    "relu, read by a product": (lambda a, b, c: torch.relu(a @ b) @ c, ((N, 64),)),
    "bias and gelu": (lambda a, b, c: F.gelu(torch.addmm(c, a, b)), ((N,),)),
    "residual": (lambda a, b, r: torch.relu(a @ b) + r, ((M, N),)),
    "behind a view": (lambda a, b: torch.relu((a @ b).view(2, M // 2, N)), ()),
    "another type": (lambda a, b: torch.relu(a @ b).float(), ()),
}
APART: dict[str, tuple[Net, tuple[tuple[int, ...], ...]]] = {
    "nothing behind it": (lambda a, b: a @ b, ()),
    "a view": (lambda a, b: (a @ b).view(-1), ()),
    "a sum": (lambda a, b: (a @ b).sum(1), ()),
    "pointwise, then a sum": (lambda a, b: torch.relu(a @ b).sum(1), ()),
    "a softmax": (lambda a, b: torch.softmax(a @ b, -1), ()),
    "residual and norm": (lambda a, b, r: F.layer_norm(a @ b + r, (N,)), ((M, N),)),
    "broadcast": (lambda a, b, r: (a @ b).unsqueeze(0) + r, ((3, M, N),)),
    # Inductor makes it a part of the product
    "a bias": (lambda a, b, r: a @ b + r, ((M, N),)),
}


@pytest.mark.parametrize(("net", "more"), FUSED.values(), ids=FUSED)
def test_what_is_fused_decides_a_close_choice(net, more):
    grouped = {} if torch.__version__ >= (2, 13) else {"loop_ordering_after_fusion": False}
    done = lowered(net, *more, aten=CLOSE, **grouped)
    assert takes_triton(done)
    # Inductor has in fact fused: no kernel of its own follows
    first = done.sources[0].split("@triton_heuristics.pointwise")
    assert len(first) == 1
    assert diode_engine.get_stats()["fusion_decided"] >= 1
    assert not takes_triton(lowered(net, *more, aten=CLOSE, diode_fusion_aware=False))
    assert diode_engine.get_stats()["fusion_decided"] == 0


def both(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A product that is needed itself, too."""
    product = a @ b
    return product, torch.relu(product)


WHOLE = Epilogue(writes=1, reads=1)
SAVED: dict[str, tuple[Net, tuple[tuple[int, ...], ...], Epilogue]] = {
    "mm, relu": (*FUSED["relu, returned"], WHOLE),
    "addmm, bias and gelu": (*FUSED["bias and gelu"], replace(WHOLE, instructions=50)),
    "mm, residual": (*FUSED["residual"], replace(WHOLE, operands=1)),
    "mm, both": (both, (), replace(WHOLE, writes=0)),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_kernel_is_taken_where_it_is_worth_it_with_what_fusing_saves(name):
    """That is the writing and the reading of the output, without what a fused kernel cannot
    hide."""
    net, more, epilogue = SAVED[name]
    problem = Problem.make(name.partition(",")[0], M, N, K, "bfloat16")
    moved_us = 2 * M * N * 2 / (H200.memory_gb_s * 1e3) + LAUNCH_US
    saved = epilogue.saved_us(problem, H200)
    assert saved == moved_us if epilogue == WHOLE else saved < moved_us
    assert takes_triton(lowered(net, *more, aten=LIMIT + 0.01 - saved))
    assert not takes_triton(lowered(net, *more, aten=LIMIT - 0.01 - saved))


@pytest.mark.skipif(torch.__version__ >= (2, 13), reason="torch 2.13 fuses what is behind a view")
def test_what_old_torch_does_not_fuse_behind_a_view():
    net, _ = FUSED["behind a view"]
    done = lowered(net)
    assert not takes_triton(done)
    assert "@triton_heuristics.pointwise" in done.sources[0]


@pytest.mark.parametrize(("net", "more"), APART.values(), ids=APART)
def test_what_is_not_fused_does_not(net, more):
    assert not takes_triton(lowered(net, *more))
    assert diode_engine.get_stats()["fusion_decided"] == 0


def test_without_epilogue_fusion_there_is_nothing_to_save():
    assert not takes_triton(lowered(FUSED["relu, returned"][0], epilogue_fusion=False))


def test_what_follows_two_products_is_fused_into_the_last():
    done = lowered(lambda a, b, c: F.silu(a @ b) * (a @ c), (K, N))
    taken = [seen.candidates[0].template for seen in done.seen]
    assert taken == ["aten::mm", "triton::mm"]


def test_an_epilogue_that_costs_more_than_the_product_is_not_fused():
    """Nor is the library's kernel then one of which nothing is known."""
    m, n, k = 8192, 8192, 16
    problem = Problem.make("mm", m, n, k, "bfloat16")
    heavy = Epilogue(writes=1, reads=1, instructions=100)
    assert heavy.saved_us(problem, H200) < -100.0  # more than the library's 99.9 µs

    install_aten(99.9)
    net = lambda a, b: torch.erf(torch.erf(a @ b))  # noqa: E731
    done = lower(build_of(net, (m, k), (k, n)))
    assert not takes_triton(done)


def sum_of(x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    for each in more:
        x = torch.sin(x) + each
    return x


@pytest.mark.parametrize(
    ("tile", "shape", "operands", "dtype", "fused"),
    [
        ((128, 256, 8), (M, N), 3, torch.bfloat16, True),
        ((128, 256, 8), (M, N), 4, torch.bfloat16, False),
        ((128, 256, 8), (M, N), 1, torch.float32, True),
        ((128, 256, 8), (M, N), 2, torch.float32, False),
        ((128, 256, 8), (N,), 4, torch.float32, True),  # a vector is not as large as the tile
        ((64, 64, 4), (M, N), 4, torch.float32, True),  # a quarter of the accumulators
    ],
)
def test_an_epilogue_that_would_spill_registers_stays_apart(tile, shape, operands, dtype, fused):
    one = dict(zip(("BLOCK_M", "BLOCK_N", "num_warps"), tile, strict=True))
    predictor = Rule(lambda _, c: 1.0 if one.items() <= c.config.items() else 99.0)
    install(predictor)

    def build():
        more = [empty(*shape, dtype=dtype) for _ in range(operands)]
        return lambda a, b, *more: sum_of(a @ b, *more), (empty(M, K), empty(K, N), *more)

    done = lower(build)
    assert takes_triton(done)
    assert ("@triton_heuristics.pointwise" not in done.sources[0]) == fused
