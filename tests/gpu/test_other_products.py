"""On an NVIDIA GPU: FlexAttention and the products of 8 bits and of groups in whole programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.conftest import BF16, compiled, draw, error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9,
        reason="the GPU here has no compute capability 9",
    ),
]


def searched_nothing(function: Any, *args: Any) -> Any:
    """The result of the compiled function, for which nothing may be benchmarked."""
    result, counted, _ = compiled(function, *args)
    assert counted["select_algorithm_autotune"] == 0
    return result


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= 256)


@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("mask", [None, causal, window])
def test_flex_attention_forward_and_backward(mask, head, diode):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batch, heads, length = 2, 16, 1024
    q, k, v = (draw(batch, heads, length, head).requires_grad_() for _ in range(3))
    blocks = None if mask is None else create_block_mask(mask, None, None, length, length)

    result = searched_nothing(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), q, k, v)
    grads = torch.autograd.grad(result.float().square().sum(), (q, k, v))
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    allowed = None
    if mask is not None:
        row, column = (
            torch.arange(length, device="cuda")[:, None],
            torch.arange(length, device="cuda"),
        )
        allowed = mask(None, None, row, column)
    reference = torch.nn.functional.scaled_dot_product_attention(*exact, attn_mask=allowed)
    assert error(result, reference) < 1e-2
    expected = torch.autograd.grad(reference.square().sum(), exact)
    for ours, right in zip(grads, expected, strict=True):
        assert error(ours, right) < 3e-2
    if "H200" in torch.cuda.get_device_name():  # the table is of an H200
        assert diode.get_stats()["flex_decided"] == 2


def test_flex_attention_decoding(diode):
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = draw(8, 32, 1, 128), draw(8, 8, 4096, 128), draw(8, 8, 4096, 128)

    result = searched_nothing(lambda q, k, v: flex_attention(q, k, v, enable_gqa=True), q, k, v)
    exact = [t.double() for t in (q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))]
    assert error(result, torch.nn.functional.scaled_dot_product_attention(*exact)) < 1e-2
    if "H200" in torch.cuda.get_device_name():
        assert diode.get_stats()["flex_decided"] == 1


# An expert without tokens, one with half of all, and one with a single one, among others.
GROUPS = {"skewed": (0, 512, 1, 100, 27, 130, 190, 64), "equal": (128,) * 8}


@pytest.mark.parametrize("groups", list(GROUPS))
def test_products_of_groups(groups, diode):
    sizes = GROUPS[groups]
    offsets = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    tokens, weights = draw(sum(sizes), 512), draw(len(sizes), 768, 512).transpose(1, 2)

    def experts(tokens: Any, weights: Any, offsets: Any) -> Any:
        return torch.nn.functional.silu(torch._grouped_mm(tokens, weights, offs=offsets))

    result = searched_nothing(experts, tokens, weights, offsets)
    parts = tokens.double().split(sizes)
    exact = torch.cat([part @ weights[i].double() for i, part in enumerate(parts)])
    assert error(result, torch.nn.functional.silu(exact)) < 1e-2
    assert diode.get_stats()["model_selections"] == 1


@pytest.mark.parametrize("scaling", ["tensor", "row"])
def test_products_of_float8(scaling, diode):
    x, weight = draw(300, 1024), draw(2048, 1024)
    dims = None if scaling == "tensor" else 1

    def quantised(t: Any) -> tuple[Any, Any]:
        largest = t.abs().amax(dim=dims, keepdim=dims is not None).float()
        scale = largest / torch.finfo(torch.float8_e4m3fn).max
        return (t.float() / scale).to(torch.float8_e4m3fn), scale

    (a, scale_a), (b, scale_b) = quantised(x), quantised(weight)

    def linear(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=BF16)

    scale_b = scale_b.t() if dims is not None else scale_b
    result = searched_nothing(linear, a, b, scale_a, scale_b)
    exact = (a.double() * scale_a.double()) @ (b.double().t() * scale_b.double())
    assert error(result, exact) < 1e-2
    assert diode.get_stats()["model_selections"] == 1


def test_products_of_int8(diode):
    a = torch.randint(-128, 128, (64, 1024), device="cuda", dtype=torch.int8)
    b = torch.randint(-128, 128, (512, 1024), device="cuda", dtype=torch.int8).t()
    result = searched_nothing(torch._int_mm, a, b)
    assert torch.equal(result.cpu(), a.cpu().int() @ b.cpu().int())
    assert diode.get_stats()["model_selections"] == 1


def test_a_sum_of_two_products(diode):
    a, b, c, d = (draw(512, 512) for _ in range(4))
    result = searched_nothing(lambda a, b, c, d: a @ b + c @ d, a, b, c, d)
    exact = a.double() @ b.double() + c.double() @ d.double()
    assert error(result, exact) < 1e-2
    assert diode.get_stats()["fallbacks"] == 0


def test_a_bias_of_one_element_is_collected(tmp_path):
    """Its kernels were once timed with a bias that they read beyond its end."""
    from diode_engine.collect.local import LocalExecutor
    from diode_engine.collect.planning.plan import CandidateSelection, Plan
    from diode_engine.collect.run import collect
    from diode_engine.core.problem import Problem
    from diode_engine.store import Store

    problem = Problem.make("addmm", 256, 1, 512, "float16", bias="scalar")
    with Store.open(tmp_path / "s.db") as store:
        collect(store, Plan.for_problems([problem], CandidateSelection(12)), LocalExecutor([0]))
        table = store.read()
    timed = {table.candidates[c].template for c in table.candidate[table.failure == 0]}
    assert "triton::mm" in timed
