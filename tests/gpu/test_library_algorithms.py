"""On an NVIDIA GPU: products by named algorithms of cuBLASLt."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from diode_engine.inductor.choosing import library_algorithms
from diode_engine.inductor.library.cublaslt import Product
from diode_engine.inductor.library.product import Plan, diode_library_product, library_of
from tests.gpu.conftest import compiled, draw, error

pytestmark = pytest.mark.gpu

SHAPES = {
    "mm": [(512, 256), (256, 384)],
    "addmm, a vector": [(384,), (512, 256), (256, 384)],
    "addmm, a matrix": [(512, 384), (512, 256), (256, 384)],
    "bmm": [(3, 512, 256), (3, 256, 384)],
    "baddbmm": [(3, 512, 384), (3, 512, 256), (3, 256, 384)],
}


def plans(inputs: Sequence[torch.Tensor], out: torch.Tensor) -> list[str]:
    """The algorithms that the heuristic lists."""
    library = library_of(0)
    bias = inputs[0] if len(inputs) > 2 else None
    product = Product(library, inputs[-2], inputs[-1], out, bias=bias)
    configs = [library.config(found.algorithm) for found in product.list_algorithms(4)]
    return [str(Plan(str([x.shape for x in inputs]), False, config)) for config in configs]


def reference(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    exact = inputs[-2].double() @ inputs[-1].double()
    return exact + inputs[0].double() if len(inputs) > 2 else exact


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_each_algorithm_computes_the_product(shapes, caplog):
    inputs = [draw(*shape) for shape in shapes]
    out = torch.empty_like(reference(inputs), dtype=inputs[0].dtype)
    named = plans(inputs, out)
    assert named
    for plan in named:
        for _ in range(2):  # with a bias at another address
            inputs = [draw(*shape) for shape in shapes]
            diode_library_product(*inputs, out=out.fill_(torch.nan), plan=plan)
            assert error(out, reference(inputs)) < 4e-3
    assert not caplog.records


def test_a_graph_and_a_second_stream_replay_the_product():
    inputs = [draw(512, 256), draw(256, 384)]
    out = torch.empty(512, 384, dtype=inputs[0].dtype, device="cuda")
    (plan, *_) = plans(inputs, out)
    diode_library_product(*inputs, out=out, plan=plan)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        diode_library_product(*inputs, out=out, plan=plan)
    inputs[0].normal_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.replay()
    torch.cuda.current_stream().wait_stream(stream)
    assert error(out, reference(inputs)) < 4e-3


def test_a_compiled_layer_calls_the_algorithm(diode, monkeypatch):
    model: Any = SimpleNamespace(
        key="second", configs=(), knows=lambda _: True, choose=lambda _, offers, __: len(offers) - 1
    )
    monkeypatch.setattr(library_algorithms, "model_for", lambda _: model)
    diode.install_diode_choices(top_k_configs=1)
    inputs = [draw(4096), draw(4096, 4096), draw(4096, 4096)]
    result, _, code = compiled(lambda b, x, w: torch.addmm(b, x, w), *inputs)
    if diode.get_stats()["algorithms_chosen"]:  # where the library's kernel was taken
        assert "diode_library_product(" in "".join(code)
    assert error(result, reference(inputs)) < 4e-3
