"""Programs of libraries that call torch.compile by themselves, lowered for a pretended GPU.

The library runs as it does for a user, in small sizes on the CPU, up to the call of Inductor; the
graphs that Inductor is given there are lowered for the GPU. Each test skips where its library is
not installed: `pip install -e '.[clients]'`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import client_programs
import pytest
import torch
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx, config
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from zoo_lowering import lower_graphs, noting_backend

import diode_engine
from diode_engine.inductor import without_gpu
from diode_engine.inductor.without_gpu import program
from tests.inductor_nogpu.conftest import empty, perceptron, state_in_keys

ROOT = Path(__file__).parents[2]
TUNED = {"max_autotune_gemm": True}
LIBRARIES = {
    "Flux": "diffusers", "Qwen3": "transformers", "float8": "torchao", "int8": "torchao",
    "LoRA": "peft", "torchtitan": "torchtitan", "timm": "timm",
    "sentence-transformers": "sentence_transformers", "torch-geometric": "torch_geometric",
    "gpytorch": "gpytorch", "x-transformers": "x_transformers", "Lightning": "lightning",
}  # fmt: skip


class Lowering:
    """What a program of a library gave to Inductor, and what Diode chose for it."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.options: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Whatever is compiled by Inductor is noted, and runs on the CPU as it is."""
        backend = noting_backend(self.graphs)

        def compile_graph(graph: Any, inputs: Any, *_: Any, **given: Any) -> Any:
            self.options.append(given.get("config_patches") or {})
            return backend(graph, inputs)

        torch._dynamo.reset()
        with mock.patch.object(compile_fx, "compile_fx", compile_graph):
            yield

    def lower(self, **options: Any) -> dict[str, Any]:
        """Lowers what was noted, with Diode as its variable installs it. Returns the counts, and
        the products by operator."""
        with (
            diode_engine.diode_choices(top_k_configs=1),
            diode_engine.profile_predictions() as profile,
        ):
            lower_graphs(self.graphs, {**(self.options[0] if self.options else {}), **options})
            counts = diode_engine.get_stats()
        # An outer product is no product for newer releases of torch.
        ops = [
            str(c.problem.op).replace("addmm", "mm") for c in profile.selections if c.problem.K > 1
        ]
        return counts | {"ops": {op: ops.count(op) for op in ops}}


@pytest.fixture
def lowering(monkeypatch):
    # Lightning keeps the random state of each GPU, the pretended one's too.
    for function in ("get_rng_state_all", "set_rng_state_all"):
        monkeypatch.setattr(torch.cuda, function, mock.Mock(return_value=[]))
    # torchao and the program of torchtitan set options of Inductor.
    with config.patch(coordinate_descent_tuning=False, max_autotune_gemm=False):
        yield Lowering()


# How many products of each kind the programs have; `mm` includes `addmm`, since releases of torch
# differ in which sums they join to a product.
PRODUCTS = {
    "Flux blocks": {"mm": 20},
    "Flux whole": {"mm": 30},
    "Qwen3 decode, batch 1": {"mm": 15},
    "Qwen3 decode, batch 8": {"mm": 15},
    "Qwen3 decode, batch 64": {"mm": 15},
    "Qwen3 prefill": {"mm": 15},
    "Qwen3 generate": {"mm": 15, "bmm": 4},
    "float8 Llama layers": {"scaled_mm": 14},
    "float8 Llama layers, torchao's settings": {"scaled_mm": 14},
    "float8 training": {"mm": 42},  # a CPU emulates float8
    "int8 Llama layers": {"int_mm": 14},
    "LoRA training": {"mm": 108},
    "torchtitan Llama training": {"mm": 21},
    "timm ViT": {"mm": 9},
    "sentence-transformers BERT": {"mm": 12},
    "torch-geometric GAT": {"mm": 2},
    "gpytorch deep kernel": {"mm": 11},
    "x-transformers training": {"mm": 39},
    "Lightning fit": {"mm": 5},
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_librarys_program_gets_its_kernels_from_diode(name, lowering):
    pytest.importorskip(LIBRARIES[name.split()[0]])
    with lowering.noted():
        client_programs.PROGRAMS[name]("cpu", True, TUNED)()
        tuned = config.max_autotune_gemm  # torchtitan has no way to give options
    assert tuned or all(given == TUNED for given in lowering.options)
    found = lowering.lower(**TUNED)
    assert found["fallbacks"] == 0
    assert found["ops"] == PRODUCTS[name]


def compile_like_vllm(graph, inputs):
    return torch._inductor.standalone_compile(
        graph, inputs, dynamic_shapes="from_tracing_context",
        options={"config_patches": {"max_autotune": True, "coordinate_descent_tuning": True}},
    )  # fmt: skip


def compile_by_vllm(graph, inputs):
    interface = pytest.importorskip("vllm.compilation.compiler_interface")
    assert repr(state_in_keys()) in str(interface.get_inductor_factors())  # its own cache's key
    rows = pytest.importorskip("vllm.config.utils").Range(24, 24)
    adaptor = interface.InductorStandaloneAdaptor("binary", use_aot_compile=False)
    return adaptor.compile(graph, inputs, {}, rows, key="a graph")[0]


@pytest.mark.parametrize("backend", [compile_like_vllm, compile_by_vllm])
def test_vllms_call_of_inductor_asks_diode(backend, monkeypatch):
    """vLLM gives Inductor each piece of a graph by standalone_compile."""
    nothing = mock.Mock(return_value=None)  # it would launch the other kernels to tune them
    monkeypatch.setattr(PythonWrapperCodegen, "generate_and_run_autotune_block", nothing)

    def build():
        layers = perceptron(512, 1030, 512)
        return torch.compile(layers, backend=backend), (empty(24, 512),)

    with diode_engine.diode_choices(top_k_configs=1), without_gpu.lowering() as lowered:
        torch._dynamo.reset()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            compiled, args = build()
            with pytest.raises(program._DataNeeded):
                compiled(*args)
        counts = diode_engine.get_stats()
    assert (counts["fallbacks"], counts["model_selections"]) == (0, 2)
    assert [len(seen.candidates) for seen in lowered.seen] == [1, 1]
    assert all(seen.predicted_us[0] is not None for seen in lowered.seen)


def test_a_package_of_aotinductor_has_diodes_kernels(monkeypatch):
    def stop(*_):
        raise RuntimeError("the compilers of C++ and CUDA come next")

    monkeypatch.setattr(GraphLowering, "codegen_with_cpp_wrapper", stop)
    with diode_engine.diode_choices(top_k_configs=1), without_gpu.lowering() as lowered:
        mode = FakeTensorMode(shape_env=ShapeEnv(tracked_fakes=[]), export=True)
        with mode:
            layers = perceptron(512, 1030, 512)
            x = empty(24, 512)
        with tracing(TracingContext(mode)):
            exported = torch.export.export(layers, (x,), strict=False)
        with pytest.raises(InductorError, match="come next"):
            torch._inductor.aot_compile(exported.module(), (x,), options=TUNED)
        counts = diode_engine.get_stats()
    assert (counts["fallbacks"], counts["model_selections"]) == (0, 2)
    assert [len(seen.candidates) for seen in lowered.seen] == [1, 1]


RECIPES = {
    "diffusers": ("diffusers", 20),
    "transformers": ("transformers", 10),
    "torchao": ("torchao", 2),
    "PEFT": ("peft", 14),
    "Lightning": ("lightning", 2),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_the_guide(name, lowering, monkeypatch, tmp_path):
    library, products = RECIPES[name]
    pytest.importorskip(library)
    page = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
    recipe = re.search(rf"^## {name}\n.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    if name == "transformers":  # it compiles on a GPU only
        monkeypatch.setattr("transformers.CompileConfig._compile_all_devices", True)
    if name == "torchao":
        monkeypatch.setattr("torchao.quantization.quant_api._check_hardware_support", mock.Mock())
    monkeypatch.chdir(tmp_path)
    with lowering.noted():
        exec(recipe[1].replace('"cuda"', '"cpu"'), {})  # noqa: S102
    found = lowering.lower(fast_autotune=True)
    assert found["fallbacks"] == 0
    assert sum(found["ops"].values()) == products


def test_torchaos_tuning_takes_products_of_one_row_away():
    def chosen(**options):
        build = lambda: (torch.mm, (empty(1, 512), empty(512, 1024)))  # noqa: E731
        with diode_engine.diode_choices(top_k_configs=1):
            without_gpu.lower(build, mode="default", options={**TUNED, **options})
            return int(diode_engine.get_stats()["total_calls"])

    assert chosen() == 1
    assert chosen(coordinate_descent_tuning=True) == 0
